"""Checks that the lost commits are part of main. Exit status: 0 all well, 10 something is wrong, 3 git can't be used here.

The repository's own configuration is the agent's work, so only git's plumbing is called, nothing may be fetched, and
replacement objects, grafts and the commit graph, which can pretend a history, are ignored.
"""

import subprocess
import sys

MAIN_TIP = "a5f76e1470e06ccb80ff8d2db7e9fbc19d4b32be"
LOST_TIP = "a4d9254e5714ca8f8f0ced691a5f8c474bd1d998"
WRONG = 10
UNUSABLE = 3
FIELDS = ["gust", "pressure", "temperature", "time", "wind"]
FILES = {
    "README.md": "# Station settings\n\nOne field per line in fields.txt.\n",
    "stations.csv": "id,name\n06041,Skagen\n06052,Thyboron\n06079,Anholt\n",
    "units.csv": "temperature,degC\nwind,m/s\ngust,m/s\n",
}
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/home/grader",
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}


class Git:
    def __init__(self, repository: str) -> None:
        self._command = ("git", "-C", repository, "-c", "core.commitGraph=false", "-c", "core.fsmonitor=false")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [*self._command, *arguments]
        return subprocess.run(command, check=False, env=ENVIRONMENT, capture_output=True, timeout=20)

    def succeeds(self, *arguments: str) -> bool:
        return self.run(*arguments).returncode == 0

    def text(self, *arguments: str) -> str | None:
        result = self.run(*arguments)
        return result.stdout.decode("utf-8", "replace") if result.returncode == 0 else None


def usable(git: Git) -> bool:
    """Whether git accepts the repository at all: a refusal over its owner is the environment's fault, not the agent's."""
    result = git.run("rev-parse", "--git-dir")
    sys.stderr.buffer.write(result.stderr)
    return not result.stderr.startswith(b"fatal: detected dubious ownership")


def checks(git: Git) -> dict[str, bool]:
    fields = git.text("cat-file", "blob", "refs/heads/main:fields.txt")
    return {
        "the objects are sound": git.succeeds("fsck", "--full", "--no-dangling", "--no-progress"),
        "main is checked out": git.text("symbolic-ref", "HEAD") == "refs/heads/main\n",
        "main keeps its history": git.succeeds("merge-base", "--is-ancestor", MAIN_TIP, "refs/heads/main"),
        "main has the lost commits": git.succeeds("merge-base", "--is-ancestor", LOST_TIP, "refs/heads/main"),
        "fields.txt has the fields of both sides": fields is not None and sorted(fields.splitlines()) == FIELDS,
        **{
            f"{name} is right": git.text("cat-file", "blob", f"refs/heads/main:{name}") == content
            for name, content in FILES.items()
        },
    }


def main() -> int:
    git = Git(sys.argv[1])
    if not usable(git):
        return UNUSABLE
    results = checks(git)
    for name, passed in results.items():
        print("ok  " if passed else "FAIL", name)
    return 0 if all(results.values()) else WRONG


if __name__ == "__main__":
    sys.exit(main())
