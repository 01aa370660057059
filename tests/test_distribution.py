"""The wheel and the sdist hold the whole package, whichever way they are built.

`harness.images` and its siblings are links to top-level folders: a build that doesn't look behind them ships a package with holes.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINKED = ("images", "agents", "graders")

IMPORT_EVERYTHING = """
import importlib, pkgutil, harness
names = [module.name for module in pkgutil.walk_packages(harness.__path__, "harness.", onerror=lambda name: None)]
for name in names:
    if not name.endswith(".__main__"):
        importlib.import_module(name)
print("\\n".join(names))
"""


def build(*arguments: str) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def from_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built straight from the working tree."""
    folder = tmp_path_factory.mktemp("tree")
    build("--wheel", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def through_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist, as an installer does where it finds no wheel. The sdist lies beside it."""
    folder = tmp_path_factory.mktemp("sdist")
    build("--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def names_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def package_files() -> set[str]:
    """Every file of the package that git knows, by its name in a wheel."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "harness", *LINKED],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = [Path(name) for name in listing.split("\0") if name]
    files = [path for path in paths if (ROOT / path).is_file()]
    return {path.as_posix() if path.parts[0] == "harness" else f"harness/{path.as_posix()}" for path in files}


@pytest.mark.parametrize("wheel", ["from_tree", "through_sdist"])
def test_wheel_holds_every_file_of_the_package_once(wheel: str, request: pytest.FixtureRequest) -> None:
    names = names_in(request.getfixturevalue(wheel))
    assert len(names) == len(set(names)), "a file is in the wheel twice"
    inside = {name for name in names if ".dist-info/" not in name}
    assert inside == package_files()
    for package in LINKED:
        assert f"harness/{package}/__init__.py" in inside
    assert {name.split("/")[0] for name in inside} == {"harness"}, "the wheel installs a second top-level package"


def test_sdist_holds_what_the_readme_mentions(through_sdist: Path) -> None:
    with tarfile.open(next(through_sdist.parent.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"} <= names
    assert {f"{package}/__init__.py" for package in LINKED} <= names


@pytest.mark.network
def test_installed_wheel_imports_completely(through_sdist: Path, tmp_path: Path) -> None:
    environment, empty = tmp_path / "venv", tmp_path / "empty"
    empty.mkdir()
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    python = environment / "bin" / "python"
    install = [
        str(python),
        "-m",
        "pip",
        "--quiet",
        "--quiet",
        "install",
        "--disable-pip-version-check",
        str(through_sdist),
    ]
    subprocess.run(install, check=True, stdin=subprocess.DEVNULL)

    imported = subprocess.run(
        [str(python), "-I", "-c", IMPORT_EVERYTHING], cwd=empty, capture_output=True, text=True, check=False
    )
    assert imported.returncode == 0, imported.stderr
    modules = set(imported.stdout.split())
    expected = {name for name in package_files() if name.endswith(".py") and not name.endswith("__init__.py")}
    assert {name.removesuffix(".py").replace("/", ".") for name in expected} <= modules

    version = subprocess.run(
        [str(environment / "bin" / "harness"), "--version"], cwd=empty, capture_output=True, text=True, check=False
    )
    assert version.returncode == 0, version.stderr
    assert version.stdout.strip()
