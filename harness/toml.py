"""Reading a user's TOML file: every problem found, each with its place, what is wrong and how to mend it.

Files are described by `Table` models. What TOML calls a number is never a truth value here, and the reverse; text is never
a number. Fields that a table doesn't have are errors in our own tables and warnings in foreign ones.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from harness.errors import Problem

MAX_FILE_BYTES = 1024**2
"""A configuration file or an instruction above this is a mistake, or an attack."""

Place = tuple[str | int, ...]


class Table(BaseModel):
    """One table of a file. A field that it doesn't have is an error."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, allow_inf_nan=False)
    unknown_is_error: ClassVar[bool] = True


class ForeignTable(Table):
    """A table whose format others define and extend: a field that it doesn't have is a warning."""

    unknown_is_error: ClassVar[bool] = False


TableT = TypeVar("TableT", bound=Table)


@dataclass(slots=True)
class Findings:
    """What was found wrong, or odd, while one file and what belongs to it were read.

    file: the file's path as the user knows it.
    """

    file: str
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[str] = field(default_factory=list[str])

    def problem(self, place: str | Place, what: str, remedy: str) -> None:
        """A field of the file that is wrong."""
        self.problems.append(Problem(f"{self.file}: {dotted(place)}", what, remedy))

    def problem_at(self, where: str | Path, what: str, remedy: str) -> None:
        """Something wrong elsewhere than in a field: a file that is missing, a line that can't be read."""
        self.problems.append(Problem(str(where), what, remedy))

    def warn(self, place: str | Place, what: str) -> None:
        """Something that was read but not understood, or that the author should know."""
        self.warnings.append(f"{self.file}: {dotted(place)}: {what}")


def refuse(what: str, remedy: str) -> PydanticCustomError:
    """The error that a field's own check raises."""
    return PydanticCustomError("refused", "{what}. {remedy}", {"what": what, "remedy": remedy})


def dotted(place: str | Place) -> str:
    """``("steps", 0, "name")`` as people write it: ``steps[0].name``."""
    if isinstance(place, str):
        return place
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]":
            key = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else shown(part)
            text += f".{key}" if text else key
    return text


def shown(value: object) -> str:
    """A value as a message writes it: quoted, on one line, at most 80 characters."""
    if isinstance(value, bool):
        return str(value).lower()
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    text = text.encode("unicode_escape").decode() if not text.isprintable() else text
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_text(value: str) -> bool:
    """Whether it can be written as UTF-8, as every record is. The name of a file need not be."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def suggestion(word: str, known: Iterable[str]) -> str:
    """``Did you mean "x"? `` for the nearest known word, with the known words after it."""
    words = list(known)
    near = difflib.get_close_matches(word.lower(), words, n=1, cutoff=0.6)
    listed = ", ".join(words)
    return f'Did you mean "{near[0]}"? Known: {listed}' if near else f"Known: {listed}"


def read_table(path: Path, model: type[TableT], findings: Findings) -> TableT | None:
    """The file as ``model``; None when something is wrong with it, which ``findings`` then tells."""
    text = read_text(path, findings, shown=findings.file)
    document = None if text is None else _parse(text, findings)
    if document is None:
        return None
    before = len(findings.problems)
    for place, name, owner in _unknown(model, document, ()):
        if owner.unknown_is_error:
            findings.problem((*place, name), "unknown field", suggestion(name, owner.model_fields))
        else:
            findings.warn((*place, name), f"unknown field, ignored. {suggestion(name, owner.model_fields)}")
    try:
        table = model.model_validate(document)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            what, remedy = _explain(detail)
            findings.problem(detail["loc"], what, remedy)
        return None
    return table if len(findings.problems) == before else None


def read_text(path: Path, findings: Findings, *, shown: str | Path) -> str | None:
    """A file's text; None when it can't be read as UTF-8, which ``findings`` then tells."""
    try:
        if not path.is_file():
            what = "is not a regular file" if path.exists() else "this file is missing"
            findings.problem_at(shown, what, "Write it")
            return None
        if path.stat().st_size > MAX_FILE_BYTES:
            findings.problem_at(shown, f"is larger than {MAX_FILE_BYTES} bytes", "Make it shorter")
            return None
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        findings.problem_at(shown, f"can't be read: {error}", "Mend the file or its permissions")
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"not UTF-8: byte 0x{data[error.start]:02x}"
        findings.problem_at(f"{shown}:{line}", what, "Save the file as UTF-8")
        return None


_TOML_MESSAGE = re.compile(
    r"(?P<what>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL
)


def _parse(text: str, findings: Findings) -> dict[str, Any] | None:
    if text.startswith("\ufeff"):
        findings.problem_at(
            f"{findings.file}:1:1", "starts with a byte order mark", "Save the file as UTF-8 without one"
        )
        return None
    try:
        return tomllib.loads(text)
    except RecursionError:
        findings.problem_at(findings.file, "is nested too deeply", "Make it flatter")
    except ValueError as error:
        what, where, remedy = _place_of(error, text)
        findings.problem_at(f"{findings.file}{where}", f"not valid TOML: {what}", remedy)
    return None


def _place_of(error: ValueError, text: str) -> tuple[str, str, str]:
    """What the parser says, ``:line:column``, and the line itself."""
    match = _TOML_MESSAGE.fullmatch(str(error))
    if match is None:
        return str(error), "", "Mend the value"
    lines = text.splitlines() or [""]
    at_end = match["line"] is None
    line = len(lines) if at_end else int(match["line"])
    column = len(lines[-1]) + 1 if at_end else int(match["column"])
    content = lines[line - 1].strip() if line <= len(lines) else ""
    remedy = (
        f"The line reads: {shown(content)}" if content else "Look at the end of that line, and at the one before it"
    )
    return match["what"], f":{line}:{column}", remedy


def _unknown(model: type[Table], document: dict[str, Any], place: Place) -> Iterator[tuple[Place, str, type[Table]]]:
    for name, value in document.items():
        info = model.model_fields.get(name)
        if info is None:
            yield place, name, model
            continue
        inner = _table_in(info.annotation)
        if inner is None:
            continue
        for part, item in _items(info.annotation, value):
            if isinstance(item, dict):
                yield from _unknown(inner, cast("dict[str, Any]", item), (*place, name, *part))


def _table_in(annotation: Any) -> type[Table] | None:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation
    return next((table for table in map(_table_in, get_args(annotation)) if table is not None), None)


def _items(annotation: Any, value: Any) -> Iterator[tuple[Place, Any]]:
    """The tables in a field's value, each with its place below the field."""
    if isinstance(value, list):
        yield from (((index,), item) for index, item in enumerate(cast("list[Any]", value)))
    elif isinstance(value, dict) and dict in (get_origin(annotation), *map(get_origin, get_args(annotation))):
        yield from (((key,), item) for key, item in cast("dict[str, Any]", value).items())
    else:
        yield (), value


_TYPES = {
    "string_type": ("text", "Put it in quotes"),
    "int_type": ("a whole number", "Write digits only, without quotes"),
    "float_type": ("a number", "Write a number, without quotes"),
    "bool_type": ("true or false", "Write true or false, without quotes"),
    "list_type": ("a list", "Put it in square brackets"),
    "dict_type": ("a table", "Write it as a table: { key = value }"),
    "model_type": ("a table", "Write it as a table: { key = value }"),
    "finite_number": ("a finite number", "Write a finite number"),
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def _explain(detail: ErrorDetails) -> tuple[str, str]:
    """What is wrong, and how to mend it."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "refused":
        return context["what"], context["remedy"]
    if kind == "missing":
        return "this field is missing", "Add it"
    if kind in _TYPES:
        wanted, remedy = _TYPES[kind]
        return f"must be {wanted}, not {shown(value)}", remedy
    if kind in _BOUNDS:
        key, word = _BOUNDS[kind]
        return f"must be {word} {context[key]:g}, not {shown(value)}", "Write a number in that range"
    if kind == "enum":
        known = re.findall(r"'([^']*)'", context["expected"])
        return f"{shown(value)} isn't one of its values", suggestion(str(value), known)
    if kind == "string_too_short":
        return "must not be empty", "Write it, or leave the field out"
    return f"{detail['msg']}, not {shown(value)}", "Mend the value"
