"""The run's configuration: one file, every mistake in it named, variables over it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.config import HostVariables, TrustHost, load_config, read_variables
from harness.errors import ConfigError

WHOLE = """
paths = ["tasks/a", "/srv/bench"]
n = 2
concurrency = 8
runs_dir = "out"
max_context_files = 5000
max_context_bytes = "4G"

[agent]
name = "scripted"
options = { script = "x.txt", tries = 3, strict = true, ratio = 0.5, list = ["a"] }

[benchmarks.small]
n = 4
[benchmarks."org/other"]

[images]
trust_host_certificates = false
[images.map]
"python:3.13-slim*" = "local/python:3.13"
"*" = "harness/base:bookworm"

[engine]
host = "unix:///run/other.sock"

[timeouts]
agent = 2
grader = 1.5
"""


def test_every_field(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(WHOLE)
    config = load_config(file, environ={})
    assert config.paths == [tmp_path / "tasks/a", Path("/srv/bench")]
    assert config.runs_dir == tmp_path / "out"
    assert (config.n, config.concurrency) == (2, 8)
    assert (config.attempts_for("small"), config.attempts_for("org/other"), config.attempts_for("new")) == (4, 2, 2)
    assert (config.max_context_files, config.max_context_bytes) == (5000, 4 * 1024**3)
    assert config.agent.name == "scripted"
    assert config.agent.options == {"script": "x.txt", "tries": 3, "strict": True, "ratio": 0.5, "list": ["a"]}
    assert list(config.images.map) == ["python:3.13-slim*", "*"]
    assert config.images.trust_host_certificates is TrustHost.NEVER
    assert config.engine.host == "unix:///run/other.sock"
    assert (config.timeouts.agent, config.timeouts.grader, config.timeouts.build) == (2, 1.5, 1)


def test_defaults_without_a_file(tmp_path: Path) -> None:
    config = load_config(environ={}, folder=tmp_path)
    assert (config.paths, config.n, config.concurrency, config.agent.name) == ([], 1, None, "oracle")
    assert config.runs_dir == tmp_path / "runs"
    assert config.images.trust_host_certificates is TrustHost.AUTO
    assert config.engine.host is None


def test_which_file_is_read(tmp_path: Path) -> None:
    for name, n in (("harness.toml", 2), ("variable.toml", 3), ("option.toml", 4)):
        (tmp_path / name).write_text(f"n = {n}\n")
    variable = {"HARNESS_CONFIG": str(tmp_path / "variable.toml")}
    assert load_config(environ={}, folder=tmp_path).n == 2
    assert load_config(environ={"HARNESS_CONFIG": ""}, folder=tmp_path).n == 2
    assert load_config(environ=variable, folder=tmp_path).n == 3
    assert load_config(tmp_path / "option.toml", environ=variable, folder=tmp_path).n == 4


def test_the_working_directory_is_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "harness.toml").write_text("n = 7\nruns_dir = 'r'\n")
    monkeypatch.chdir(tmp_path)
    config = load_config(environ={})
    assert (config.n, config.runs_dir) == (7, tmp_path / "r")


def test_variables_win_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("runs_dir = 'a'\n")
    environ = {"HARNESS_RUNS_DIR": "b", "DOCKER_HOST": "tcp://engine:2375"}
    config = load_config(environ=environ, folder=tmp_path)
    assert config.runs_dir == tmp_path / "b"
    assert config.engine.host == "tcp://engine:2375"


def test_an_engine_in_the_file_wins_over_docker_host(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("[engine]\nhost = 'unix:///a'\n")
    assert load_config(environ={"DOCKER_HOST": "unix:///b"}, folder=tmp_path).engine.host == "unix:///a"


@pytest.mark.parametrize(
    ("environ", "variables"),
    [
        ({}, HostVariables()),
        ({"HARNESS_CONFIG": "", "HARNESS_RUNS_DIR": "", "DOCKER_HOST": ""}, HostVariables()),
        (
            {"HARNESS_CONFIG": "c", "HARNESS_RUNS_DIR": "r", "DOCKER_HOST": "d"},
            HostVariables(config=Path("c"), runs_dir=Path("r"), docker_host="d"),
        ),
    ],
)
def test_variables(environ: dict[str, str], variables: HostVariables) -> None:
    assert read_variables(environ) == variables


BAD = {
    "syntax": ("n = = 2", "harness.toml:1:5", "not valid TOML"),
    "bytes": (b"n = 1\n# \xff", "harness.toml:2", "not UTF-8"),
    "unknown": ("concurency = 2", "concurency", 'Did you mean "concurrency"?'),
    "unknown-table": ("[image]", "image", 'Did you mean "images"?'),
    "unknown-inner": ("[images]\nmaps = {}", "images.maps", 'Did you mean "map"?'),
    "unknown-benchmark": ("[benchmarks.small]\nattempts = 2", "benchmarks.small.attempts", "Known: n"),
    "n-zero": ("n = 0", "n", "must be above 0, not 0"),
    "n-bool": ("n = true", "n", "must be a whole number, not true"),
    "n-text": ("n = '4'", "n", 'must be a whole number, not "4"'),
    "n-float": ("n = 4.0", "n", "must be a whole number, not 4.0"),
    "n-huge": ("n = 100001", "n", "must be at most"),
    "benchmark": ("[benchmarks.small]\nn = -1", "benchmarks.small.n", "must be above 0"),
    "benchmark-number": ("[benchmarks]\nsmall = 4", "benchmarks.small", "must be a table, not 4"),
    "paths": ("paths = 'a'", "paths", "must be a list"),
    "path": ("paths = ['a', 3]", "paths[1]", "is not a path"),
    "path-empty": ("paths = ['']", "paths[0]", "is not a path"),
    "path-nul": ('runs_dir = "a\\u0000"', "runs_dir", "is not a path"),
    "path-home": ("runs_dir = '~no-such-user-here/x'", "runs_dir", "home"),
    "agent": ("agent = 'oracle'", "agent", "must be a table"),
    "agent-empty": ("[agent]\nname = ''", "agent.name", "must not be empty"),
    "option": ("[agent.options]\na = {b = 1}", "agent.options.a", "an option can't be"),
    "option-list": ("[agent.options]\na = [1]", "agent.options.a", "an option can't be"),
    "trust": ("[images]\ntrust_host_certificates = 'yes'", "images.trust_host_certificates", 'true, false or "auto"'),
    "trust-number": ("[images]\ntrust_host_certificates = 1", "images.trust_host_certificates", "not 1"),
    "map-value": ("[images.map]\n'a' = 'b c'", "images.map.a", "can't name an image"),
    "map-number": ("[images.map]\n'a' = 3", "images.map.a", "must be text, not 3"),
    "map-key": ("[images.map]\n'' = 'a'", 'images.map.""', "can't name an image"),
    "host": ("[engine]\nhost = 3", "engine.host", "must be text"),
    "timeout": ("[timeouts]\nagent = 0", "timeouts.agent", "must be above 0"),
    "timeout-nan": ("[timeouts]\nagent = nan", "timeouts.agent", "finite"),
    "timeout-inf": ("[timeouts]\nbuild = inf", "timeouts.build", "must be"),
    "bytes-size": ("max_context_bytes = '3 GiBi'", "max_context_bytes", "is not a size"),
    "files": ("max_context_files = 0", "max_context_files", "must be above 0"),
}


@pytest.mark.parametrize(("content", "where", "what"), BAD.values(), ids=BAD.keys())
def test_bad_files(content: str | bytes, where: str, what: str, tmp_path: Path) -> None:
    file = tmp_path / "harness.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, folder=tmp_path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}: {where}:" if not where.startswith("harness") else f"{tmp_path}/{where}")
    assert what in line


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: this file is missing"):
        load_config(tmp_path / "absent.toml", environ={})
    with pytest.raises(ConfigError, match=r"absent\.toml: this file is missing"):
        load_config(environ={"HARNESS_CONFIG": str(tmp_path / "absent.toml")})


def test_all_mistakes_come_at_once(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text("n = 0\nx = 1\n[timeouts]\nagent = true\n")
    with pytest.raises(ConfigError) as caught:
        load_config(environ={}, folder=tmp_path)
    assert len(str(caught.value).splitlines()) == 3


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=100))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "harness.toml").write_bytes(content)
    try:
        load_config(environ={}, folder=tmp_path)
    except ConfigError as error:
        assert str(error)
