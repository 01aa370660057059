"""Variables in a Dockerfile's FROM and ARG lines: ``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``${NAME:+alternative}``."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def expand(word: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """``word`` with variables replaced and quotes taken away. A variable without a value is empty, as for Docker."""
    out: list[str] = []
    position = 0
    quote = ""
    while position < len(word):
        character = word[position]
        if character == escape and quote != "'" and position + 1 < len(word):
            out.append(word[position + 1])
            position += 2
        elif character in "\"'" and quote in ("", character):
            quote = "" if quote else character
            position += 1
        elif character == "$" and quote != "'":
            value, position = _variable(word, position + 1, values, escape)
            out.append(value)
        else:
            out.append(character)
            position += 1
    return "".join(out)


def _variable(word: str, position: int, values: Mapping[str, str], escape: str) -> tuple[str, int]:
    """The value of the variable whose ``$`` stands before ``position``, and where the text goes on."""
    braced = word.startswith("{", position)
    found = _NAME.match(word, position + braced)
    if found is None:
        return "$", position
    if not braced:
        return values.get(found[0], ""), found.end()
    end = _closing(word, found.end())
    modifier = word[found.end() : end]
    return _modified(found[0], modifier, values, escape), end + 1


def _closing(word: str, position: int) -> int:
    depth = 1
    for index in range(position, len(word)):
        depth += {"{": 1, "}": -1}.get(word[index], 0)
        if depth == 0:
            return index
    return len(word)


def _modified(name: str, modifier: str, values: Mapping[str, str], escape: str) -> str:
    value = values.get(name)
    colon = modifier.startswith(":")
    operator, argument = modifier[colon : colon + 1], modifier[colon + 1 :]
    is_set = bool(value) if colon else value is not None
    if operator == "+":
        return expand(argument, values, escape) if is_set else ""
    if operator == "-" and not is_set:
        return expand(argument, values, escape)
    return value or ""
