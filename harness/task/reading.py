"""What every part of reading one task needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.task.harbor import OwnTable
from harness.task.image import ContextLimits
from harness.toml import Findings

FILE_NAME = "task.toml"


@dataclass(frozen=True, slots=True)
class Reading:
    """One task directory while it is being read.

    folder: the task's folder, absolute and without links.
    shown: the same folder as the user named it, for messages.
    root: the benchmark's root.
    own: the ``[harness]`` table; None: a task of Harbor's, which keeps Harbor's defaults.
    environ: the host's environment variables.
    limits: of build contexts, where the task sets none.
    """

    folder: Path
    shown: Path
    root: Path
    own: OwnTable | None
    environ: Mapping[str, str]
    limits: ContextLimits
    findings: Findings

    def name_of(self, path: Path) -> str:
        """A path below the task's folder as the user knows it."""
        return str(self.shown / path.relative_to(self.folder))

    def unsupported(self, place: str, what: str, remedy: str) -> None:
        """A valid field that this version doesn't serve."""
        self.findings.problem(place, f"{what}: not supported yet", remedy)
