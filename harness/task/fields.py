"""The kinds of value that a task file's fields take, each with its own check and message."""

from __future__ import annotations

import difflib
import math
import posixpath
import re
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field

from harness.toml import refuse, shown

Seconds = Annotated[float, Field(gt=0)]
SecondsOrNone = Annotated[float, Field(ge=0)]
"""A time that may be 0, which means: none."""
Mebibytes = Annotated[int, Field(gt=0, le=2**33)]
"""The upper bound keeps bytes within the engine's 64 bits."""
Text = Annotated[str, Field(min_length=1)]


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise refuse("holds a NUL character", "Remove it: no program can be given one")
    return value


Command = Annotated[str, Field(min_length=1), AfterValidator(_no_nul)]


def _variable(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise refuse(f"{shown(name)} can't be a variable's name", "Use letters, digits and underscores")
    return name


def _value(value: Any) -> str:
    if not isinstance(value, str):
        raise refuse(f"a variable's value must be text, not {shown(value)}", f'Put it in quotes: "{str(value)[:20]}"')
    return _no_nul(value)


Variables = dict[Annotated[str, AfterValidator(_variable)], Annotated[str, BeforeValidator(_value)]]


def _user(value: Any) -> str:
    number = isinstance(value, int) and not isinstance(value, bool)
    if not number and not isinstance(value, str):
        raise refuse(f"must be a user's name or number, not {shown(value)}", 'Write user = "name" or user = 1000')
    name = str(value)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.$-]*(:[A-Za-z0-9_][A-Za-z0-9_.$-]*)?", name):
        raise refuse(f"{shown(name)} can't be a user", 'Write user = "name" or user = 1000')
    return name


User = Annotated[str, BeforeValidator(_user)]


def _absolute(path: str) -> str:
    _no_nul(path)
    if not path.startswith("/"):
        raise refuse(
            f"{shown(path)} is not an absolute path", f"Write the whole path in the sandbox: {shown('/' + path)}"
        )
    if ".." in path.split("/"):
        raise refuse(f"{shown(path)} holds '..'", "Write the path without it")
    return posixpath.normpath("/" + path.lstrip("/"))


AbsolutePath = Annotated[str, AfterValidator(_absolute)]
"""An absolute path in the sandbox, in its shortest form."""

_UNITS = {"K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def parse_size(value: str) -> int | None:
    """``2G``, ``512M`` as bytes; None when it isn't a size above 0."""
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([KMGT])(?:i?B)?\s*", value, re.IGNORECASE)
    if match is None:
        return None
    size = int(float(match[1]) * _UNITS[match[2].upper()])
    return size if 0 < size < 2**63 else None


def size(value: Any) -> int:
    """Bytes, from a number or text with a unit. Raises what a field's own check raises."""
    if isinstance(value, int) and not isinstance(value, bool):
        found = value if 0 < value < 2**63 else None
    else:
        found = parse_size(value) if isinstance(value, str) else None
    if found is None:
        raise refuse(f"{shown(value)} is not a size", 'Write bytes, or text such as "512M" or "10G"')
    return found


Size = Annotated[int, BeforeValidator(size)]
"""Bytes: a number, or text with a unit of 1024: ``"10G"``."""


def _legacy_size(value: Any) -> int:
    if not isinstance(value, str):
        raise refuse(f"must be text with a unit, not {shown(value)}", 'Write "2G", or use the field that counts in MB')
    return size(value)


LegacySize = Annotated[int, BeforeValidator(_legacy_size)]
"""Bytes, from Harbor's older ``memory = "2G"``."""


def _artifact(value: Any) -> Any:
    return {"source": value} if isinstance(value, str) else value


ShorthandArtifact = BeforeValidator(_artifact)
"""Lets a path stand for a table whose only field is ``source``."""


def _destination(value: str) -> str | None:
    parts = value.split("/")
    if not value:
        return None
    if (
        value.startswith("/")
        or "\\" in value
        or "\0" in value
        or ".." in parts
        or not any(part not in ("", ".") for part in parts)
    ):
        raise refuse(
            f"{shown(value)} can't be a destination", "Write a relative path with forward slashes and without '..'"
        )
    if posixpath.normpath(value) == "manifest.json":
        raise refuse('"manifest.json" is taken by the list of what was kept', "Choose another name")
    return value


Destination = Annotated[str, AfterValidator(_destination)]


def _minimum(value: Any) -> float | dict[str, float]:
    if _is_number(value):
        return float(value)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        if all(_is_number(number) for number in table.values()):
            return {name: float(number) for name, number in table.items()}
    what = f"must be a finite number, or a table of finite numbers by reward, not {shown(cast('object', value))}"
    raise refuse(what, "Write min_reward = 0.5, or min_reward = { tests = 1.0 }")


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1000 and math.isfinite(value)
    )


MinReward = Annotated[float | dict[str, float], BeforeValidator(_minimum)]

CAPABILITIES = (
    *(
        "AUDIT_CONTROL",
        "AUDIT_READ",
        "AUDIT_WRITE",
        "BLOCK_SUSPEND",
        "BPF",
        "CHECKPOINT_RESTORE",
        "CHOWN",
        "DAC_OVERRIDE",
    ),
    *("DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN"),
    *(
        "MAC_OVERRIDE",
        "MKNOD",
        "NET_ADMIN",
        "NET_BIND_SERVICE",
        "NET_BROADCAST",
        "NET_RAW",
        "PERFMON",
        "SETFCAP",
        "SETGID",
    ),
    *("SETPCAP", "SETUID", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE"),
    *("SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "SYSLOG", "WAKE_ALARM"),
)
"""Linux's capabilities, without their common prefix."""


def _capability(value: str) -> str:
    name = value.upper().removeprefix("CAP_")
    if name not in CAPABILITIES:
        near = difflib.get_close_matches(name, CAPABILITIES, n=1)
        remedy = f'Did you mean "{near[0]}"?' if near else "See capabilities(7)"
        raise refuse(f"{shown(value)} is not a capability of Linux", remedy)
    return name


Capability = Annotated[str, AfterValidator(_capability)]
