"""Generated cases for ``.dockerignore``: small trees, and ignore files made of their names and of odd syntax."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

NAMES = (
    "a", "b", "ab", "abc", "x.py", "y.py", "x.txt", "README.md", ".env", "a b", "é", "src", "lib", "d1", "a+b", "a|b",
    "[x]", "!n", "#c",
)  # fmt: skip
ODD = (
    "*", "**", "?", "??", "*.py", "**/*.py", "**/x.*", "[a-c]", "[^a]", "[!a]", "[a-c]*", "[[:alpha:]]*", "a[^b]c",
    "*/*", "*/*/*", "**/a/**", "a/**", "**/a", "**a", "a**", "a**b", "***", "**/**", "*/**", "\\a", "\\*", "a\\ b",
    "\\#c", "\\!n", "\\d*", "\\w", "[\\d]", ".", "..", "./a", "../a", "/", "/a", "//a", "a/", "a//b", "a/./b",
    "a/../b", "b/..", "**/..", ".*", "*.*", "!", "! a", "!!n", "!*", "!**", "!**/a", "!*.py", "!a/*", "!*/a", "!.",
    "!..", "!/", "!/a", "!a/", "!src/**/x.py", "!**/x.py", "[", "[]a]", "[a", "a]", "[a-]", "[z-a]", "\\", "a\\",
    "a|*", "*|a", "a{2}*", "a*{2}", "{a}*", "^a*", "(a)*", "a+*", "$a", "*$", "[.]env", "[*]", "[?]x", "\\Aa", "a\\z",
    "\\y", "\\b*", "\\Qa+b\\E*", "[x]", "\\[x\\]", "*é", "?é", "é/**", "#c", " #c", "/ a", "./!n", "a b", "a*b",
    "Dockerfile", "!Dockerfile", ".dockerignore", "*ignore", "Docker*", "d1/**/a", "**/d1/*", "**/lib/**", "src/*/a",
    "a\u000b", "\ufeffa", "\ufeff*.py", "\u00a0a\u00a0", "\u001ca", "a\tb",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    files: tuple[str, ...]
    folders: tuple[str, ...]
    ignore: bytes

    def write(self, root: Path) -> None:
        for folder in self.folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for file in self.files:
            (root / file).parent.mkdir(parents=True, exist_ok=True)
            (root / file).touch()
        (root / "Dockerfile").write_text("FROM scratch\n")
        (root / ".dockerignore").write_bytes(self.ignore)


def make_case(seed: int) -> Case:
    pick = random.Random(seed)
    folders: list[str] = [""]
    for _ in range(pick.randint(1, 6)):
        folders.append(_below(pick.choice(folders), pick.choice(NAMES)))
    folders = sorted(set(folders) - {""})
    files = {_below(pick.choice(["", *folders]), pick.choice(NAMES)) for _ in range(pick.randint(2, 14))}
    files.difference_update(folders)
    lines = [_line(pick, [*folders, *sorted(files)]) for _ in range(pick.choice((1, 1, 2, 2, 3, 4, 6)))]
    ending = pick.choice(("\n", "\n", "\n", "\r\n"))
    text = ending.join(lines) + pick.choice(("", ending))
    bom = b"\xef\xbb\xbf" if pick.random() < 0.05 else b""
    return Case(tuple(sorted(files)), tuple(folders), bom + text.encode())


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _line(pick: random.Random, paths: list[str]) -> str:
    roll = pick.random()
    if roll < 0.3:
        line = pick.choice(ODD)
    elif roll < 0.65:
        line = _bend(pick, pick.choice(paths))
    elif roll < 0.72:
        line = "/".join(pick.choice((*NAMES, *ODD)) for _ in range(pick.randint(1, 4)))
    else:
        line = (
            pick.choice(("**/", "", "", "*/", "./", "/"))
            + pick.choice(paths).rsplit("/", 1)[-1]
            + pick.choice(("", "", "/", "/**", "*", "/*"))
        )
    if pick.random() < 0.3:
        line = "!" + line
    if pick.random() < 0.08:
        line = pick.choice((" ", "\t", "")) + line + pick.choice((" ", "\t"))
    return line


def _bend(pick: random.Random, path: str) -> str:
    """A path with some of its characters or parts made into wildcards."""
    parts = path.split("/")
    for index, part in enumerate(parts):
        roll = pick.random()
        if roll < 0.12:
            parts[index] = pick.choice(("*", "**", "?" * len(part)))
        elif roll < 0.24:
            at = pick.randrange(len(part))
            parts[index] = (
                part[:at]
                + pick.choice(("*", "?", f"[{part[at]}]", f"[^{part[at]}]", "\\" + part[at], "[a-z]"))
                + part[at + 1 :]
            )
    return "/".join(parts)
