"""Where a task's parts lie in a sandbox, as Harbor's tasks expect it."""

from __future__ import annotations

TESTS = "/tests"
"""Put there when grading begins, never before."""
SOLUTION = "/solution"
LOGS = "/logs"
AGENT_LOGS = "/logs/agent"
RESULTS = "/logs/verifier"
"""Where the test script leaves the reward, and whatever else is to be kept of it."""
ARTIFACTS = "/logs/artifacts"
"""Where agents publish files: always kept, and handed to a separate verifier."""
LOG_FOLDERS = (LOGS, AGENT_LOGS, RESULTS, ARTIFACTS)
"""In the order in which they are made; anyone may write there."""
