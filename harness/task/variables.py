"""Variables of a task that name a variable of the host: ``${VAR}`` and ``${VAR:-default}``.

As in Harbor a reference is the whole value; inside a longer text it stays as it is.
"""

from __future__ import annotations

import re

from harness.task.reading import Reading

_REFERENCE = re.compile(r"\$\{(?P<name>[^}:]+)(?::-(?P<default>.*))?\}", re.DOTALL)
_EMBEDDED = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}")


def resolve_variables(
    reading: Reading, variables: dict[str, str], place: str, *, required: bool = True
) -> dict[str, str]:
    """The variables with the host's values in them.

    required: whether a host variable that is missing, without a default, is a problem; else the variable is left out with a warning.
    """
    resolved: dict[str, str] = {}
    for key, value in variables.items():
        match = _REFERENCE.fullmatch(value)
        if match is None:
            if _EMBEDDED.search(value):
                reading.findings.warn(
                    f"{place}.{key}", "${...} inside a longer text is not replaced, here as in Harbor"
                )
            resolved[key] = value
            continue
        name: str = match["name"]
        default: str | None = match["default"]
        found = reading.environ.get(name, default)
        if found is not None:
            resolved[key] = found
        elif required:
            remedy = f"Set {name}, or give a default: ${{{name}:-value}}"
            reading.findings.problem(f"{place}.{key}", f"the host has no variable {name}", remedy)
        else:
            reading.findings.warn(f"{place}.{key}", f"left out, because the host has no variable {name}")
    return resolved
