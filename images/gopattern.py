"""One ignore pattern as Docker reads it, as a test on paths.

Docker turns a pattern into a regular expression of Go's and escapes less than it means to: ``|``, ``{2}``, ``^`` and escapes such as
``\\d`` keep their meaning there, and a negated class matches a slash. This module takes the same steps, so that what Docker's CLI
leaves out of a context is left out here. Its one gap: the Unicode classes ``\\p…``, which are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.images.goregex import BadPattern, translate


@dataclass(frozen=True, slots=True)
class PathTest:
    """What a path must satisfy; any of the four is enough."""

    exact: tuple[str, ...] = ()
    prefix: str | None = None
    suffix: str | None = None
    regex: str | None = None
    """For ``re.match``."""


def compile_pattern(pattern: str) -> PathTest:
    """``pattern`` is cleaned and has no ``!``. Raises `BadPattern`."""
    check_syntax(pattern)
    source, kind = _go_regex(pattern)
    match kind:
        case "exact":
            return PathTest(exact=(pattern,))
        case "prefix":
            return PathTest(prefix=pattern[:-2])
        case "suffix":
            suffix = pattern[2:]
            return PathTest(exact=(suffix[1:],) if suffix.startswith("/") else (), suffix=suffix)
        case _:
            return PathTest(regex=translate(source))


def check_syntax(pattern: str) -> None:
    """Refuse what Docker refuses at once, by Go's ``filepath.Match(pattern, ".")``: an open or empty class, a lonely backslash.

    That function stops at the first part that doesn't fit, where parts are divided by stars; so the second part is looked at only
    when the first one fits a dot, and later ones never.
    """
    first, rest = _split_at_star(pattern.lstrip("*"))
    _check_part(first)
    if rest and (first == "?" or first[:1] in ("\\", "[", ".")):
        source, _ = _go_regex(first)
        if re.match(translate(source), "."):
            _check_part(_split_at_star(rest.lstrip("*"))[0])


def _split_at_star(pattern: str) -> tuple[str, str]:
    position, in_class = 0, False
    while position < len(pattern):
        character = pattern[position]
        if character == "*" and not in_class:
            break
        if character in "[]":
            in_class = character == "["
        position += 2 if character == "\\" else 1
    return pattern[:position], pattern[position:]


def _check_part(part: str) -> None:
    position = 0
    while position < len(part):
        character = part[position]
        position += 1
        if character == "\\":
            if position == len(part):
                raise BadPattern("it ends with a backslash that escapes nothing")
            position += 1
        elif character == "[":
            position = _check_class(part, position)


def _check_class(pattern: str, position: int) -> int:
    """The position after a class whose ``[`` has been read."""
    if pattern[position : position + 1] == "^":
        position += 1
    ranges = 0
    while not (ranges and pattern[position : position + 1] == "]"):
        position = _check_class_character(pattern, position)
        if pattern[position] == "-":
            position = _check_class_character(pattern, position + 1)
        ranges += 1
    return position + 1


def _check_class_character(pattern: str, position: int) -> int:
    if pattern[position : position + 1] in ("", "-", "]"):
        raise BadPattern("a character class [...] is empty, open, or has a '-' without both ends")
    position += 2 if pattern[position] == "\\" else 1
    if position >= len(pattern):
        raise BadPattern("a character class [...] isn't closed")
    return position


def _go_regex(pattern: str) -> tuple[str, str]:
    """The regular expression that Docker makes of a pattern, and which kind of comparison it then uses."""
    out, kind = ["^"], "exact"
    text = pattern.removeprefix("\ufeff")
    position, first = 0, True
    while position < len(text):
        character = text[position]
        position += 1
        if text.startswith("**", position - 1):
            position += 1
            if text.startswith("/", position):
                position += 1
            if position < len(text):
                out.append("(.*/)?")
                kind = "regex"
            elif kind == "exact":
                kind = "prefix"
            else:
                out.append(".*")
                kind = "regex"
            if first:
                kind = "suffix"
        elif character in "*?":
            out.append("[^/]*" if character == "*" else "[^/]")
            kind = "regex"
        elif character in ".+()$":
            out.append("\\" + character)
        elif character == "\\" and position < len(text):
            out.append("\\" + text[position])
            position += 1
            kind = "regex"
        else:
            if character in "[]":
                kind = "regex"
            out.append(character)
        first = False
    return "".join(out) + "$", kind
