"""The nop agent does nothing: it shows that a task isn't passed already."""

from __future__ import annotations

from harness.ports import AgentContext


class NopAgent:
    """Does nothing at all."""

    name = "nop"
    uses_policy = False

    async def setup(self, context: AgentContext) -> None:
        """Nothing to install."""

    async def run(self, context: AgentContext) -> None:
        """Nothing to do."""
