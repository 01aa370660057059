"""A sandbox's first process: it says when the sandbox is ready, then sleeps until the lease ends.

It runs below the engine's own init (tini), which reaps and passes SIGTERM on, so a stop is obeyed at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.ports import TOOLBOX

READY = b"harness: ready\n"
HOSTS = "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
"""What /etc/hosts holds where the engine doesn't write it (a sandbox without network)."""

_SCRIPT = """\
[ -s /etc/hosts ] || printf '%s' "$2" >/etc/hosts
[ -d "$3" ] || mkdir -p "$3"
[ "$#" -gt 3 ] || command -v sleep >/dev/null || { echo 'there is no sleep in the image' >&2; exit 127; }
echo 'harness: ready'
if [ "$#" -gt 3 ]; then exec "$4" sleep "$1" </dev/null >/dev/null 2>&1; fi
exec sleep "$1" </dev/null >/dev/null 2>&1
"""


def shell(toolbox: bool) -> tuple[str, ...]:
    """The shell for the harness's own scripts: the toolbox's where there is one, for nothing in the sandbox can change that."""
    return (f"{TOOLBOX}/busybox", "sh") if toolbox else ("/bin/sh",)


def command(*, lease_s: float, workdir: str, toolbox: bool) -> Sequence[str]:
    """The first process's program and arguments."""
    busybox = (f"{TOOLBOX}/busybox",) if toolbox else ()
    return (*shell(toolbox), "-c", _SCRIPT, "sh", str(math.ceil(lease_s)), HOSTS, workdir, *busybox)
