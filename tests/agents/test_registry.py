"""Agents by name, and what a configuration may tell them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.agents.registry import make_agent
from harness.errors import ConfigError


def test_agents_by_name(tmp_path: Path) -> None:
    (tmp_path / "commands").write_text("true\n")
    for name, made in (("oracle", "oracle"), ("nop", "nop"), (f"scripted:{tmp_path / 'commands'}", "scripted")):
        assert make_agent(name).name == made


@pytest.mark.parametrize("name", ["orcale", "nop:x", "scripted"])
def test_a_name_that_no_agent_has(name: str) -> None:
    with pytest.raises(ConfigError, match="There are: oracle, nop"):
        make_agent(name)


def test_an_option_that_an_agent_doesnt_take_is_never_ignored() -> None:
    with pytest.raises(ConfigError, match=r"takes no options\. Remove tries"):
        make_agent("oracle", {"tries": 3})
