"""A Dockerfile's text as instructions: directives, continuation lines, comments and here-documents, with where each character stands.

Only what is needed to find the images that a Dockerfile names, and to replace their names in place. (The package
dockerfile-parse knows neither here-documents nor positions, and rewrites more than it is asked to.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*$")
_HERE_DOCUMENT = re.compile(r"(?:^|\s)\d*<<(-?)([\"']?)([A-Za-z_][A-Za-z0-9_]*)\2")
_WITH_HERE_DOCUMENTS = frozenset({"RUN", "COPY", "ADD"})


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the text, from ``start`` up to ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Word:
    """A word of an instruction, and where it stands in the text."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; its words are divided by white space, quotes are kept. ``line`` counts from 1."""

    keyword: str
    words: tuple[Word, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Directive:
    """A parser directive; ``span`` covers its whole line, ``value_span`` what stands after the sign."""

    name: str
    value: str
    span: Span
    value_span: Span


def directives(text: str) -> Iterator[Directive]:
    """The directives at the top of a Dockerfile; the first line that isn't one ends them."""
    start = 1 if text.startswith("\ufeff") else 0
    for raw in text[start:].splitlines(keepends=True):
        found = _DIRECTIVE.match(raw.rstrip("\r\n"))
        if found is None:
            return
        value = Span(start + found.start(2), start + found.end(2))
        yield Directive(found[1].lower(), found[2], Span(start, start + len(raw)), value)
        start += len(raw)


def instructions(text: str, escape: str = "\\") -> Iterator[Instruction]:
    """The instructions in order. ``escape``: the character that continues a line."""
    continued = re.compile(re.escape(escape) + r"[ \t]*$")
    lines = _Lines(text)
    while (first := lines.next()) is not None:
        if _is_comment(first.text) or not first.text.strip():
            continue
        characters, places = _continue(lines, first, continued)
        words = tuple(_words(characters, places))
        if not words:
            continue
        keyword = words[0].text.upper()
        if keyword in _WITH_HERE_DOCUMENTS:
            for found in _HERE_DOCUMENT.finditer(characters):
                lines.skip_until(found[3], tabs=bool(found[1]))
        yield Instruction(keyword, words[1:], first.number)


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    start: int
    number: int


class _Lines:
    """The physical lines, without their ends, one after another."""

    def __init__(self, text: str) -> None:
        self._lines: list[_Line] = []
        start = 0
        for number, raw in enumerate(re.split(r"(?<=\n)", text), start=1):
            line = raw.rstrip("\r\n")
            mark = number == 1 and line.startswith("\ufeff")
            self._lines.append(_Line(line[mark:], start + mark, number))
            start += len(raw)
        self._at = 0

    def next(self) -> _Line | None:
        if self._at == len(self._lines):
            return None
        self._at += 1
        return self._lines[self._at - 1]

    def skip_until(self, delimiter: str, *, tabs: bool) -> None:
        """Pass over a here-document; nothing is passed over when it never ends, since then it isn't one."""
        for index in range(self._at, len(self._lines)):
            line = self._lines[index].text
            if (line.lstrip("\t") if tabs else line) == delimiter:
                self._at = index + 1
                return


def _continue(lines: _Lines, line: _Line, continued: re.Pattern[str]) -> tuple[str, list[int]]:
    """A logical line, and for each of its characters where it stands in the text."""
    characters: list[str] = []
    places: list[int] = []
    current: _Line | None = line
    while current is not None:
        if current is not line and (_is_comment(current.text) or not current.text.strip()):
            current = lines.next()
            continue
        more = continued.search(current.text)
        kept = current.text[: more.start()] if more else current.text
        characters.append(kept)
        places.extend(range(current.start, current.start + len(kept)))
        if more is None:
            break
        current = lines.next()
    return "".join(characters), places


def _words(characters: str, places: list[int]) -> Iterator[Word]:
    for found in re.finditer(r"\S+", characters):
        yield Word(found[0], Span(places[found.start()], places[found.end() - 1] + 1))


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")
