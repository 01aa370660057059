"""The command line. Subcommands are loaded when they are used: `harness --help` loads nothing heavy."""

from __future__ import annotations

import errno
import gc as collector  # the command harness.cli.gc becomes this package's `gc` once it is loaded
import os
import sys
from importlib import import_module
from types import ModuleType

import click

import harness

BAD_USE = 2
NOT_GRADED = 1
INTERRUPTED = 130
_UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to standard output can fail with."""

COMMANDS = {
    "run": ("harness.cli.run:run", "Run tasks: image, sandbox, agent, grade."),
    "resume": ("harness.cli.resume:resume", "Go on with a run: what lacks a verdict."),
    "cancel": ("harness.cli.cancel:cancel", "Stop a run from another terminal."),
    "show": ("harness.cli.show:show", "Show one attempt: ending, reward, phases, files."),
    "runs": ("harness.cli.runs:runs", "List runs, or the attempts of one."),
    "report": ("harness.cli.report:report", "Report on a run: on screen, as JSON, or as an HTML page."),
    "compare": ("harness.cli.compare:compare", "Compare two runs, task by task."),
    "build": ("harness.cli.images:build", "Build the images of tasks, and say what they are."),
    "images": ("harness.cli.images:images", "Base images."),
    "doctor": ("harness.cli.doctor:doctor", "Check the engine, the disk, permissions and base images."),
    "gc": ("harness.cli.gc:gc", "Remove sandboxes that a dead run left behind."),
    "init": ("harness.cli.init:init", "Make a new task that passes as it is."),
}


def _load(module: str) -> ModuleType:
    """Import it while the garbage collector rests, and leave what was made out of later collections.

    Imports make many objects that stay: looking for garbage among them takes a fifth of a short run's CPU time.
    """
    collector.disable()
    try:
        return import_module(module)
    finally:
        collector.freeze()
        collector.enable()


class LazyGroup(click.Group):
    """A group whose commands are imported when they are invoked, and described from a table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry[0].partition(":")
        return getattr(_load(module), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from difflib import get_close_matches

            near = get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command is called {name!r}.{hint} There are: {', '.join(COMMANDS)}")
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(harness.__version__, prog_name="harness")
def cli() -> None:
    """Run LLM agents on tasks in sandboxes, and report only grades that are grades."""


def main() -> None:
    """The entry point: a bad input is one message and exit status 2, never a traceback."""
    from harness.errors import HarnessError, UsageError

    _open_streams()
    try:
        _check_arguments(sys.argv[1:])
        status = cli.main(standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leaving:
        status = leaving.exit_code
    except click.Abort:
        status = INTERRUPTED
    except click.ClickException as error:
        error.show()
        status = BAD_USE
    except UsageError as error:
        _say(error)
        status = BAD_USE
    except HarnessError as error:
        _say(error)
        status = NOT_GRADED
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if _lost_its_folder():
            _say("the working directory doesn't exist any more. Change to another one")
            sys.exit(BAD_USE)
        if error.errno not in _UNWRITABLE:
            raise
        # Whoever read our output has gone, or its disk is full: closing it must not complain once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno != errno.EPIPE:
            _say(f"the output can't be written: {error.strerror}")
        status = NOT_GRADED
    sys.exit(status if isinstance(status, int) else 0)


def _open_streams() -> None:
    """Streams that the caller has closed lead nowhere. Left closed, the next file that is opened would be standard output."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, mode))


def _check_arguments(arguments: list[str]) -> None:
    """Everything that is said of a run is UTF-8: its record, its database, its report."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise click.UsageError(f"{argument!a} isn't valid UTF-8. Rename what it names") from None


def _lost_its_folder() -> bool:
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _say(error: object) -> None:
    from harness.cli import text

    click.echo(f"error: {text.printable(str(error))}", err=True)
