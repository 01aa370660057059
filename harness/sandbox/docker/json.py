"""JSON as the engine speaks it: a type, and readers that never trust a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def member(value: Json, *path: str) -> Json:
    """The value below nested objects; None where any of them is missing or isn't an object."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def text(value: Json, *path: str) -> str:
    """The string at ``path``; empty where there is none."""
    found = member(value, *path)
    return found if isinstance(found, str) else ""


def number(value: Json, *path: str) -> int | None:
    """The integer at ``path``; None where there is none."""
    found = member(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def items(value: Json, *path: str) -> Sequence[Json]:
    """The list at ``path``; empty where there is none."""
    found = member(value, *path)
    return found if isinstance(found, Sequence) and not isinstance(found, str) else ()


def texts(value: Json, *path: str) -> tuple[str, ...]:
    """The strings of the list at ``path``."""
    return tuple(item for item in items(value, *path) if isinstance(item, str))


def mapping(value: Json, *path: str) -> dict[str, str]:
    """The object at ``path``, its string values only."""
    found = member(value, *path)
    return {key: item for key, item in found.items() if isinstance(item, str)} if isinstance(found, Mapping) else {}
