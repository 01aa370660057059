"""The regular expressions that Docker makes of ignore patterns, from Go's notation into Python's."""

from __future__ import annotations

import re

_PERL = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_C_ESCAPES = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_MAX_REPEAT = 1000


class BadPattern(ValueError):
    """Docker refuses this pattern too; the message says what is wrong with it."""


def translate(source: str) -> str:
    """The same expression for Python's ``re.match``, with ``re.ASCII``. Raises `BadPattern` where Go would refuse it."""
    return _Translator(source).translate()


class _Translator:
    """One pass over the source. Groups other than ``(.*/)`` and dots other than in it don't occur: they come escaped."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0

    def translate(self) -> str:
        branches: list[str] = []
        while True:
            branches.append(self._branch())
            if self._at >= len(self._source):
                return "|".join(branches)
            self._at += 1  # the bar

    def _branch(self) -> str:
        atoms: list[str] = []
        anchored = self._source.startswith("^", self._at)
        repeated = False
        while self._at < len(self._source) and self._source[self._at] != "|":
            repeat = self._repetition()
            if repeat is None:
                atoms.append(self._atom())
            elif not atoms:
                raise BadPattern("a repetition {…} has nothing to repeat")
            elif repeated:
                raise BadPattern("a repetition {…} follows another one")
            else:
                atoms[-1] = f"(?:{atoms[-1]}){repeat}"
            repeated = repeat is not None
        return ("" if anchored else "(?s:.*?)") + "".join(atoms)

    def _repetition(self) -> str | None:
        character = self._source[self._at]
        if character in "*?":
            self._at += 1
            return character
        found = _REPEAT.match(self._source, self._at)
        if found is None:
            return None
        low, high = int(found[1]), int(found[3]) if found[3] else None
        if low > _MAX_REPEAT or (high is not None and not low <= high <= _MAX_REPEAT):
            raise BadPattern(f"the repetition {found[0]} is out of range")
        self._at = found.end()
        return found[0]

    def _atom(self) -> str:
        character = self._source[self._at]
        self._at += 1
        match character:
            case "^":
                return r"\A"
            case "$":
                return r"\Z"
            case ".":
                return "[^\n]"
            case "(":  # only ever "(.*/)", from a double star
                self._at += len(".*/)")
                return "(?:[^\n]*/)"
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case _:
                return re.escape(character)

    def _escape(self) -> str:
        character = self._source[self._at : self._at + 1]
        if character and character.lower() in _PERL:
            self._at += 1
            return f"[{'^' if character.isupper() else ''}{_PERL[character.lower()]}]"
        if character == "Q":
            end = self._source.find(r"\E", self._at)
            literal = self._source[self._at + 1 : end if end >= 0 else None]
            self._at = len(self._source) if end < 0 else end + 2
            return f"(?:{re.escape(literal)})"
        simple = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}
        if character in simple:
            self._at += 1
            return simple[character]
        return re.escape(self._escaped_character())

    def _escaped_character(self) -> str:
        """One literal character after a backslash, in Go's notation."""
        if self._at == len(self._source):
            raise BadPattern("it ends with a backslash that escapes nothing")
        character = self._source[self._at]
        self._at += 1
        if character in _C_ESCAPES:
            return _C_ESCAPES[character]
        if character.isascii() and not character.isalnum():
            return character
        for notation in (r"x([0-9A-Fa-f]{2})", r"x\{([0-9A-Fa-f]+)\}"):
            if found := re.compile(notation).match(self._source, self._at - 1):
                self._at = found.end()
                return _character(int(found[1], 16))
        if found := re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}").match(self._source, self._at - 1):
            self._at = found.end()
            return _character(int(found[0], 8))
        raise BadPattern(f"the escape \\{character} has no meaning")

    def _class(self) -> str:
        negated = self._source.startswith("^", self._at)
        self._at += negated
        items: list[str] = []
        while not items or not self._source.startswith("]", self._at):
            if self._at >= len(self._source):
                raise BadPattern("a character class [...] isn't closed")
            items.append(self._class_item())
        self._at += 1
        return f"[{'^' if negated else ''}{''.join(items)}]"

    def _class_item(self) -> str:
        source = self._source
        if found := re.compile(r"\[:(\^?)(\w+):\]").match(source, self._at):
            if found[2] not in _POSIX or found[1]:
                raise BadPattern(f"the character class {found[0]} isn't known")
            self._at = found.end()
            return _POSIX[found[2]]
        if source[self._at] == "\\" and source[self._at + 1 : self._at + 2].lower() in _PERL:
            name = source[self._at + 1]
            self._at += 2
            return _PERL[name] if name.islower() else "\\" + name
        low = self._class_character()
        if source.startswith("-", self._at) and not source.startswith("-]", self._at):
            self._at += 1
            high = self._class_character()
            if high < low:
                raise BadPattern(f"the range {low}-{high} runs backwards")
            return f"{_in_class(low)}-{_in_class(high)}"
        return _in_class(low)

    def _class_character(self) -> str:
        if self._at >= len(self._source):
            raise BadPattern("a character class [...] isn't closed")
        character = self._source[self._at]
        self._at += 1
        return self._escaped_character() if character == "\\" else character


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise BadPattern(f"there is no character {code:#x}")
    return chr(code)


def _in_class(character: str) -> str:
    return f"\\U{ord(character):08x}"
