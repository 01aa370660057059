"""Agents by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from harness.errors import ConfigError
from harness.ports import Agent

NAMES = ("oracle", "nop", "scripted:FILE")


def resolve_name(name: str) -> str:
    """The name with the file in it, if there is one, where it lies: for a run that is resumed from another folder."""
    kind, _, argument = name.partition(":")
    return f"{kind}:{Path(argument).absolute()}" if kind == "scripted" and argument else name


def agent_digest(name: str) -> str | None:
    """Of the file that an agent's name names; None where it names none, or one that can't be read."""
    kind, _, argument = name.partition(":")
    try:
        content = Path(argument).read_bytes() if kind == "scripted" and argument else None
    except OSError:
        return None
    return None if content is None else f"sha256:{hashlib.sha256(content).hexdigest()}"


def make_agent(name: str, options: Mapping[str, object] = MappingProxyType({})) -> Agent:
    """The agent of that name. Raises ConfigError for one that doesn't exist, naming those that do, and for an option it doesn't take."""
    kind, _, argument = name.partition(":")
    agent = _agent(name, kind, argument)
    if options:
        raise ConfigError(f"agent.options: the agent {kind!r} takes no options. Remove {', '.join(options)}")
    return agent


def _agent(name: str, kind: str, argument: str) -> Agent:
    match kind:
        case "oracle" if not argument:
            from harness.agents.oracle import OracleAgent

            return OracleAgent()
        case "nop" if not argument:
            from harness.agents.nop import NopAgent

            return NopAgent()
        case "scripted" if argument:
            from harness.agents.scripted import ScriptedAgent

            return ScriptedAgent.from_file(Path(argument))
        case _:
            near = get_close_matches(kind, ["oracle", "nop", "scripted"], n=1)
            hint = f"Did you mean {near[0]!r}? " if near and near[0] != kind else ""
            raise ConfigError(f"no agent is called {name!r}. {hint}There are: {', '.join(NAMES)}")
