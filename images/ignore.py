"""``.dockerignore``: which paths stay out of a build context, with the semantics of Docker's CLI.

The file is read at the benchmark's root and its patterns are relative to that root; the context may be any folder below. Where the
root has none, the context folder's own is read, as Docker does (``Dockerfile.dockerignore`` before ``.dockerignore``). The last
pattern that matches a path, or one of its parents, decides. A folder that is left out is entered only where an exception (``!``)
begins with its path, as the CLI's classic builder does it: ``*`` with ``!**/x`` brings nothing back from folders.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.errors import ContextError
from harness.images.gopattern import PathTest, compile_pattern
from harness.images.goregex import BadPattern

IGNORE_FILE = ".dockerignore"
_SPACE = " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
"""What Go calls white space; Python's ``strip`` takes four control characters more."""
_MAX_LINE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rule:
    """One line: ``exception`` for a leading ``!``."""

    text: str
    exception: bool
    test: PathTest


class _Matcher:
    """Any of several path tests, in as few steps as there are kinds of them."""

    def __init__(self, tests: Sequence[PathTest]) -> None:
        self._exact = frozenset(path for test in tests for path in test.exact)
        self._prefixes = tuple(test.prefix for test in tests if test.prefix is not None)
        self._suffixes = tuple(test.suffix for test in tests if test.suffix is not None)
        regexes = [test.regex for test in tests if test.regex is not None]
        self._regex = re.compile("|".join(f"(?:{regex})" for regex in regexes), re.ASCII) if regexes else None

    def __call__(self, path: str) -> bool:
        return (
            path in self._exact
            or path.startswith(self._prefixes)
            or path.endswith(self._suffixes)
            or (self._regex is not None and self._regex.match(path) is not None)
        )


@dataclass(frozen=True, slots=True)
class FolderMatch:
    """What is known about a folder, for the paths directly in it.

    rules: for each rule, whether the folder or one of its parents matched it.
    runs: for each run of rules of one kind, whether any of them did.
    """

    ignored: bool
    rules: tuple[bool, ...]
    runs: tuple[bool, ...]


@dataclass(frozen=True)
class IgnoreRules:
    """Compiled rules. Paths are relative to the root, with slashes and without ``./``."""

    rules: tuple[Rule, ...] = ()

    @cached_property
    def _reopening(self) -> tuple[str, ...]:
        return tuple(rule.text + "/" for rule in self.rules if rule.exception)

    @cached_property
    def _matchers(self) -> tuple[_Matcher, ...]:
        return tuple(_Matcher([rule.test]) for rule in self.rules)

    @cached_property
    def _runs(self) -> tuple[tuple[bool, _Matcher, slice], ...]:
        """Neighbouring rules of one kind as one matcher: within a run, which of them matched a file changes nothing."""
        runs: list[tuple[bool, _Matcher, slice]] = []
        start = 0
        for end in range(1, len(self.rules) + 1):
            if end == len(self.rules) or self.rules[end].exception != self.rules[start].exception:
                tests = [rule.test for rule in self.rules[start:end]]
                runs.append((self.rules[start].exception, _Matcher(tests), slice(start, end)))
                start = end
        return tuple(runs)

    @cached_property
    def root(self) -> FolderMatch:
        """The root itself, which no rule leaves out."""
        return FolderMatch(ignored=False, rules=(False,) * len(self.rules), runs=(False,) * len(self._runs))

    def folder(self, path: str, parent: FolderMatch) -> FolderMatch:
        """What the rules say of a folder, given what they say of its parent."""
        ignored = False
        matched: list[bool] = []
        for rule, matcher, inherited in zip(self.rules, self._matchers, parent.rules, strict=True):
            hit = inherited or (rule.exception == ignored and matcher(path))
            if hit:
                ignored = not rule.exception
            matched.append(hit)
        runs = tuple(any(matched[where]) for _, _, where in self._runs)
        return FolderMatch(ignored=ignored, rules=tuple(matched), runs=runs)

    def ignores(self, path: str, parent: FolderMatch) -> bool:
        """Whether a file or link is left out, given what the rules say of its folder."""
        ignored = False
        for (exception, matcher, _), inherited in zip(self._runs, parent.runs, strict=True):
            if inherited or (exception == ignored and matcher(path)):
                ignored = not exception
        return ignored

    def reopens(self, path: str) -> bool:
        """Whether an exception begins with this folder's path, so that it must be entered though it is left out."""
        return any(prefix.startswith(path + "/") for prefix in self._reopening)


@dataclass(frozen=True, slots=True)
class Governing:
    """The rules of one context. Their patterns are relative to ``folder``.

    passed_over: the context folder's own file, where the root's wins over it.
    """

    rules: IgnoreRules
    folder: Path
    file: Path
    passed_over: Path | None = None


def governing_rules(root: Path, folder: Path, dockerfile: str) -> Governing:
    """The root's file where it has one, else what Docker reads when ``folder`` is its context. Raises ContextError."""
    own = next((name for name in (f"{dockerfile}{IGNORE_FILE}", IGNORE_FILE) if (folder / name).is_file()), None)
    if folder != root and os.path.lexists(root / IGNORE_FILE):
        return Governing(load_rules(root), root, root / IGNORE_FILE, folder / own if own else None)
    if own is None:  # where to write one
        return Governing(load_rules(folder), folder, root / IGNORE_FILE)
    return Governing(load_rules(folder, own), folder, folder / own)


def load_rules(root: Path, name: str = IGNORE_FILE) -> IgnoreRules:
    """The rules of ``root``'s ignore file; none where there is no such file. Raises ContextError."""
    path = root / name
    try:
        return parse_rules(path.read_bytes(), name=str(path))
    except FileNotFoundError:
        return IgnoreRules()
    except OSError as error:
        raise ContextError(
            f"{path}: can't be read: {error.strerror}. Make it a readable file, or remove it."
        ) from error


def parse_rules(content: bytes, *, name: str = IGNORE_FILE) -> IgnoreRules:
    """Raises ContextError that names the file and the line of every pattern that Docker would refuse."""
    rules: list[Rule] = []
    problems: list[str] = []
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if len(raw) >= _MAX_LINE_BYTES:
            problems.append(f"{name}, line {number}: the line is longer than Docker reads ({_MAX_LINE_BYTES} bytes).")
            continue
        line = raw.removesuffix(b"\r").decode("utf-8", "surrogateescape")
        try:
            if (rule := _rule(line)) is not None:
                rules.append(rule)
        except (BadPattern, re.error, OverflowError) as error:
            problems.append(f"{name}, line {number}: the pattern {line.strip(_SPACE)!r} is invalid: {error}.")
    if problems:
        raise ContextError("\n".join([*problems, "Mend or remove these lines; '\\' escapes a special character."]))
    return IgnoreRules(tuple(rules))


def _rule(line: str) -> Rule | None:
    """Docker cleans a line twice: as a line of the file, and again as a pattern; so ``/ x`` is ``x`` and ``./!x`` is an exception."""
    if line.startswith("#"):
        return None
    text = line.strip(_SPACE)
    if not text:
        return None
    if exception := text.startswith("!"):
        text = text[1:].strip(_SPACE)
    if text:
        text = _clean(text)
        text = text[1:] if len(text) > 1 and text.startswith("/") else text
    if not exception:
        text = text.strip(_SPACE)
        if not text:
            return None
        text = _clean(text)
        if exception := text.startswith("!"):
            text = text[1:]
    if exception and text in ("", "/"):
        raise BadPattern("'!' needs a path after it")
    return Rule(text=text, exception=exception, test=compile_pattern(text))


def _clean(path: str) -> str:
    """Go's ``filepath.Clean``."""
    cleaned = posixpath.normpath(path)
    return "/" + cleaned.lstrip("/") if cleaned.startswith("//") else cleaned
