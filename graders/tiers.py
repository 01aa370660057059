"""What the integrity tiers promise, what they can't, and what they look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from harness.errors import EngineError, EngineUnreachable, SandboxGone
from harness.outcome import Integrity
from harness.ports import TOOLBOX, GradeRequest
from harness.task.places import TESTS

HOLES: Mapping[Integrity, tuple[str, ...]] = MappingProxyType(
    {
        Integrity.PRISTINE: (),
        Integrity.RESTARTED: (
            "programs and libraries that the agent changed are used by the tests, unless the test script avoids them",
            "configuration that the agent left (interpreter start-up files, preloaded libraries) is in force",
        ),
        Integrity.LIVE: (
            "processes of the agent may still run and may write the result",
            "programs and libraries that the agent changed are used by the tests",
            "the tests can be read by processes of the agent while they run",
        ),
    }
)

SYSTEM_PREFIXES = ("/bin/", "/sbin/", "/lib", "/usr/", "/etc/", "/opt/", "/root/.")
_MAX_CHANGED = 200


@dataclass(frozen=True, slots=True)
class Changed:
    """System paths of the agent's sandbox that differ from its image, at most 200. ``hole``: why they are not known."""

    paths: tuple[str, ...] = ()
    hole: tuple[str, ...] = ()


async def changed_system_paths(request: GradeRequest) -> Changed:
    """None in the pristine tier. A file system that the engine can't compare with its image is the agent's, and graded all the same."""
    if request.integrity is Integrity.PRISTINE:
        return Changed()
    try:
        changed = await request.sandbox.changes()
    except (SandboxGone, EngineUnreachable):
        raise
    except EngineError as error:
        await request.log(f"[harness] what the agent changed can't be listed: {error}\n".encode())
        return Changed(hole=("what the agent changed could not be listed",))
    return Changed(tuple(path for path in changed if path.startswith(SYSTEM_PREFIXES))[:_MAX_CHANGED])


def interpreter(request: GradeRequest) -> list[str]:
    """The command that runs the test script.

    In the restarted tier a shell script is run by the toolbox's own shell; elsewhere by the script's first line.
    """
    script = f"{TESTS}/test.sh"
    match request.integrity:
        case Integrity.PRISTINE:
            return ["/bin/sh", "-c", script]
        case Integrity.LIVE:
            return [f"{TOOLBOX}/busybox", "sh", "-c", script]
        case Integrity.RESTARTED:
            if _is_shell_script(request.step.grader.tests):
                return [f"{TOOLBOX}/bash", script]
            return [f"{TOOLBOX}/busybox", "sh", "-c", script]


def _is_shell_script(folders: tuple[Path, ...]) -> bool:
    for folder in reversed(folders):
        path = folder / "test.sh"
        if path.is_file():
            with path.open("rb") as script:
                words = script.readline(256).removeprefix(b"#!").split()
            names = [word.rsplit(b"/", 1)[-1] for word in words if not word.startswith(b"-")]
            return names[:1] in ([b"sh"], [b"bash"]) or names[:2] == [b"env", b"bash"]
    return False
