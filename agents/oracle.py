"""The oracle runs the task's own reference solution: it shows that a task can be passed."""

from __future__ import annotations

from harness.archive import Tree, pack
from harness.errors import ConfigError
from harness.ports import AgentContext, Command
from harness.task.places import SOLUTION


class OracleAgent:
    """Runs ``solution/solve.sh``, as Harbor does: at ``/solution``, by its own first line, as the agent's user."""

    name = "oracle"
    uses_policy = False

    async def setup(self, context: AgentContext) -> None:
        """Nothing to install. A task without any solution is refused: a zero for it would say nothing about the task."""
        if all(step.solution is None for step in context.task.steps):
            raise ConfigError(f"{context.task.path}: the task has no solution/solve.sh, so the oracle can't run it")

    async def run(self, context: AgentContext) -> None:
        """Put the step's solution into the sandbox and run it. Its exit status is noted; the grader decides."""
        solution = context.step.solution
        if solution is None:
            await context.log(b"[harness] this step has no solution/solve.sh\n")
            return
        await context.sandbox.put("/", pack([Tree(solution, SOLUTION, executable=("solve.sh",))]))
        command = Command(
            argv=["/bin/sh", "-c", f"{SOLUTION}/solve.sh"],
            user=context.user,
            cwd=context.workdir,
            env={"DEBIAN_FRONTEND": "noninteractive", **context.task.solution_env},
            keep_bytes=0,
        )
        result = await context.sandbox.exec(command, context.log)
        await context.log(f"[harness] solve.sh exited with status {result.exit_status}\n".encode())
