"""The error tree. Each leaf says whose fault it is.

::

    HarnessError
    ├── UsageError            the user's input; printed without a traceback, exit status 2
    │   ├── TaskError         a task directory: bad TOML, a missing file, a bad value
    │   ├── ConfigError       a configuration file or an option
    │   ├── ContextError      an image's build context: too many files, a link that leaves the root
    │   ├── UnsupportedError  a valid request that this version, or this host, can't serve
    │   └── RunHeld           another process owns the run
    ├── EngineError           the engine, or what it was asked to do
    │   ├── EngineUnreachable   no answer on the engine's socket
    │   ├── ImageUnavailable    the image is neither here nor to be had
    │   ├── BuildFailed         a Dockerfile's instruction failed
    │   ├── StartFailed         a sandbox could not be created or started
    │   ├── SandboxGone         the sandbox no longer exists or no longer runs
    │   └── TransferFailed      an archive could not be read from or written to a sandbox
    │       ├── CapExceeded     it is larger, or has more members, than allowed
    │       └── PathMissing     there is nothing at its path
    ├── GraderError           the grader: it crashed, ran out of time or left no valid result
    ├── TrajectoryError       what the gateway recorded of an attempt
    │   ├── TrajectoryLost      it could not be collected
    │   └── NothingFits         nothing of it fits the length
    ├── StoreError            the run's folder or database
    │   ├── StaleOwner          another process has taken the run over
    │   └── SlotTaken           a slot already has a verdict, and this one is no retry of it
    ├── StartRefused          the host is too short of space to start an attempt
    ├── InfraAbort            infrastructure, with its cause (`harness.outcome`)
    └── RolloutFailed         a rollout can't go on (`harness.guard`)
        ├── ConsecutiveAborts   infrastructure: too many groups in a row aborted
        ├── ConsecutiveUnused   too many groups in a row were of no use to the trainer
        ├── NothingToDraw       every task that the source still yields is quarantined
        └── BudgetSpent         the user's budget of attempts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class HarnessError(Exception):
    """Base of everything that this project raises on purpose."""


class UsageError(HarnessError):
    """The user's input is at fault. The message says what, which one, and how to mend it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with an input, and how to mend it."""

    where: str
    """File, and line or field: ``tasks/a/task.toml: environment.memory_mb``."""
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}. {self.remedy}"


class TaskError(UsageError):
    """A task directory can't be used. Carries every problem that was found, not only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class ConfigError(UsageError):
    """A configuration file or an option is wrong."""


class ContextError(UsageError):
    """A build context breaks a limit or holds something that can't be sent to the engine."""


class UnsupportedError(UsageError):
    """The request is valid, but this version or this host can't serve it."""


class RunHeld(UsageError):
    """Another process owns the run: one run has one owner."""


class EngineError(HarnessError):
    """The engine failed, or refused what it was asked."""


class EngineUnreachable(EngineError):
    """Nothing answers on the engine's socket."""


class ImageUnavailable(EngineError):
    """An image is neither on the engine nor to be had from a registry."""


class BuildFailed(EngineError):
    """An image build failed.

    instruction: the Dockerfile instruction that failed, where the builder named it.
    log_tail: the last lines of the build's log, at most 4 KiB.
    log_path: where the whole log lies, if it was kept.
    tasks: the tasks that can't run without the image; whoever knows them sets them.
    """

    def __init__(self, message: str, *, instruction: str, log_tail: str, log_path: str | None = None) -> None:
        super().__init__(message)
        self.instruction = instruction
        self.log_tail = log_tail
        self.log_path = log_path
        self.tasks: tuple[str, ...] = ()


class StartFailed(EngineError):
    """A sandbox could not be created or started."""


class SandboxGone(EngineError):
    """The sandbox no longer exists, or no longer runs."""


class TransferFailed(EngineError):
    """An archive could not be read from, or written to, a sandbox; or it broke a cap."""


class CapExceeded(TransferFailed):
    """An archive is larger, or has more members, than its caller allows."""


class PathMissing(TransferFailed):
    """The path to be read doesn't exist in the sandbox."""


class GraderError(HarnessError):
    """The grader left no valid result. Never a reward, never zero."""


class TrajectoryError(HarnessError):
    """What the gateway recorded of an attempt can't be used."""


class TrajectoryLost(TrajectoryError):
    """The record of an attempt could not be collected."""


class NothingFits(TrajectoryError):
    """Nothing that was recorded of an attempt fits the length."""


class StoreError(HarnessError):
    """The run's folder or its database can't be read or written."""


class StaleOwner(StoreError):
    """A write was refused: another process has taken the run over since."""


class SlotTaken(StoreError):
    """A verdict was refused: its slot has one already, and nothing may be scored twice."""


class StartRefused(HarnessError):
    """The host is too short of disk space to start an attempt. What is on record stays as it is."""
