"""What goes into the project's own images, and what makes one out of date."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from harness.images.base import BASE, RECIPES, TOOLBOX, Recipe

ONE = b"-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n"
TWO = b"-----BEGIN CERTIFICATE-----\nNDU2\n-----END CERTIFICATE-----\n"


def context(recipe: Recipe, certificates: tuple[bytes, ...]) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(recipe.context(certificates))) as archive:
        members = {member.name: archive.extractfile(member) for member in archive}
    return {name: file.read() for name, file in members.items() if file}


def test_context_holds_what_the_dockerfile_uses() -> None:
    for recipe in RECIPES:
        assert {"Dockerfile", "packages.txt", "finish.sh"} <= set(context(recipe, ()))


def test_certificates_go_in_one_by_one() -> None:
    files = context(BASE, (ONE, TWO))
    certificates = [
        content for name, content in files.items() if name.startswith("certificates/") and name.endswith(".crt")
    ]
    assert sorted(certificates) == sorted([ONE, TWO])


def test_toolbox_takes_no_certificates() -> None:
    assert TOOLBOX.context((ONE,)) == TOOLBOX.context(())
    assert TOOLBOX.changes((ONE,)) == TOOLBOX.changes(())


def test_variables_for_certificates_only_where_there_are_any() -> None:
    without, with_one = BASE.dockerfile(()).decode(), BASE.dockerfile((ONE,)).decode()
    assert "PIP_CERT" not in without
    assert not [change for change in BASE.changes(()) if "SSL" in change]
    for variable in (
        "PIP_CERT",
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
    ):
        line = f"ENV {variable}=/etc/ssl/certs/ca-certificates.crt"
        assert line in with_one.splitlines()
        assert line in BASE.changes((ONE,))


def test_certificates_change_one_label_and_not_the_other() -> None:
    none, one, both, swapped = (BASE.labels(c) for c in ((), (ONE,), (ONE, TWO), (TWO, ONE)))
    assert none["harness.base"] == one["harness.base"] == both["harness.base"]
    assert len({none["harness.ca"], one["harness.ca"], both["harness.ca"]}) == 3
    assert both == swapped


@pytest.mark.parametrize("name", ["Dockerfile", "packages.txt", "finish.sh"])
def test_every_file_is_part_of_the_digest(tmp_path: Path, name: str) -> None:
    for file in BASE.folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert replace(BASE, folder=tmp_path).labels(()) == BASE.labels(())
    with (tmp_path / name).open("a") as file:
        file.write("# changed\n")
    assert replace(BASE, folder=tmp_path).labels(()) != BASE.labels(())
