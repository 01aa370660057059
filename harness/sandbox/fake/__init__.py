"""An engine in memory: the same ports as Docker's, no processes, no waiting. Runs under asyncio and trio alike.

Sandboxes have a file tree and a few programs (`harness.sandbox.fake.programs`); tests add their own, by name or by script, and can make
the next call of an operation fail.
"""

from harness.sandbox.fake.engine import FakeEngine, FakeSandbox, Operation
from harness.sandbox.fake.programs import Process, Program
from harness.sandbox.fake.tree import Kind, Node, Tree

__all__ = ["FakeEngine", "FakeSandbox", "Kind", "Node", "Operation", "Process", "Program", "Tree"]
