"""Runs a snippet against the package in a process of its own, without any right to read the tests or to write results.

What a test compares is plain JSON from that process, so the agent's code can only answer, not decide.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

package = Path("/workspace/src")

_WORKER = """
import json, sys
sys.path.insert(0, sys.argv[1])
scope = {}
try:
    exec(sys.stdin.read(), scope)
    answer = {"result": scope["result"]}
except Exception as error:
    answer = {"raised": type(error).__name__}
print()
print(json.dumps(answer))
"""


class Raised(str):
    """The name of the exception that the snippet ended with."""

    __slots__ = ()


def observe(snippet: str) -> Any:
    """What the snippet left in ``result``, through JSON; or the exception that it raised, as `Raised`.

    The snippet finds `IndexedSet` imported. Raises AssertionError when no answer comes within ten seconds.
    """
    try:
        return ask(f"from boltons.setutils import IndexedSet\n{snippet}\n")
    except (subprocess.TimeoutExpired, ValueError, IndexError, KeyError, TypeError) as error:
        raise AssertionError(f"no answer from the package: {error!r}") from error


def ask(source: str) -> Any:
    """The answer of one process. Raises what goes wrong as it is."""
    drop: dict[str, Any] = {"user": "nobody", "group": "nogroup", "extra_groups": ()} if os.getuid() == 0 else {}
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", _WORKER, str(package)],
        check=False,
        input=source.encode(),
        capture_output=True,
        timeout=10,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
        **drop,
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    return Raised(answer["raised"]) if "raised" in answer else answer["result"]
