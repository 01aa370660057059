"""The ports between the core and its adapters. Core code knows these; `harness.wiring` fills them.

Bytes stay bytes, paths inside a sandbox are absolute POSIX strings, times are seconds.
"""

from harness.ports.agent import Abortable, Agent, AgentContext, Grader, GradeRequest, tier
from harness.ports.image import BuildRequest, EngineImage, ImageEngine, Images, StoredImage
from harness.ports.sandbox import (
    TOOLBOX,
    ArchiveCaps,
    Command,
    Engine,
    EngineInfo,
    ExecResult,
    Labels,
    Output,
    OutputSink,
    Reaped,
    Sandbox,
    SandboxSpec,
)

__all__ = [
    "TOOLBOX",
    "Abortable",
    "Agent",
    "AgentContext",
    "ArchiveCaps",
    "BuildRequest",
    "Command",
    "Engine",
    "EngineImage",
    "EngineInfo",
    "ExecResult",
    "GradeRequest",
    "Grader",
    "ImageEngine",
    "Images",
    "Labels",
    "Output",
    "OutputSink",
    "Reaped",
    "Sandbox",
    "SandboxSpec",
    "StoredImage",
    "tier",
]
