"""Runs the tests, reports each by name, and writes the reward: 1 when every listed test passed, else 0.

Arguments: the folder of the package, the folder for ``report.json`` and ``reward.txt``.
"""

import json
import sys
import unittest
from pathlib import Path

TESTS = Path(__file__).parent
sys.path.insert(0, str(TESTS))  # python -I leaves it out
import observe  # noqa: E402


class Report(unittest.TestResult):
    """Remembers how each test ended."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes[name_of(test)] = "passed"

    def addFailure(self, test, err) -> None:
        super().addFailure(test, err)
        self.outcomes[name_of(test)] = "failed"

    def addError(self, test, err) -> None:
        super().addError(test, err)
        self.outcomes[name_of(test)] = "error"


def name_of(test: unittest.TestCase) -> str:
    return ".".join(test.id().split(".")[-2:])


def run() -> Report:
    report = Report()
    unittest.defaultTestLoader.discover(str(TESTS), pattern="test_*.py").run(report)
    return report


def main() -> int:
    package, results = (Path(argument) for argument in sys.argv[1:3])
    expected: dict[str, list[str]] = json.loads((TESTS / "expected.json").read_text())
    listed = expected["fail_to_pass"] + expected["pass_to_pass"]
    observe.package = package
    observe.ask("result = 1")  # raises when no process can be started here: that is not the package's fault
    outcomes = run().outcomes
    if sorted(outcomes) != sorted(listed):
        print("the tests that ran are not the listed ones:", *sorted(set(outcomes) ^ set(listed)), file=sys.stderr)
        return 2
    for name in listed:
        print(f"{outcomes[name]:6} {name}")
    report = {kind: {name: outcomes[name] for name in names} for kind, names in expected.items()}
    (results / "report.json").write_text(json.dumps(report, indent=2) + "\n")
    passed = all(outcomes[name] == "passed" for name in listed)
    (results / "reward.txt").write_text(f"{int(passed)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
