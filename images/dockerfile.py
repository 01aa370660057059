"""The images that a Dockerfile names, and the same Dockerfile with other names for them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harness.errors import ContextError
from harness.images.instructions import Directive, Instruction, Span, Word, directives, instructions
from harness.images.variables import expand

_MOUNT_FROM = re.compile(r"--mount=(?:\S*,)?from=([^,\s]+)")


class Use(StrEnum):
    """How a Dockerfile uses an image."""

    FROM = "FROM"
    """A stage starts from it: commands run in it."""
    COPY = "COPY --from"
    """Files are taken out of it."""
    MOUNT = "RUN --mount"
    """It is mounted while a command runs."""


@dataclass(frozen=True, slots=True)
class Named:
    """An image where a Dockerfile names it. ``ref``: with variables replaced. ``span``: where the name stands in the text."""

    ref: str
    use: Use
    span: Span
    line: int


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """A parsed Dockerfile.

    images: those that the build of the wanted stage needs, in order; ``scratch`` and stages aren't images.
    syntax: the ``# syntax=`` line, which makes the builder fetch an image that then reads the Dockerfile.
    """

    text: str
    images: tuple[Named, ...]
    syntax: Directive | None

    def rewritten(self, names: Mapping[Named, str], *, syntax: str | None = None) -> str:
        """The text with other names for images. ``syntax``: the image of the ``# syntax=`` line; None leaves the line out."""
        edits = [(named.span, name) for named, name in names.items() if name != named.ref]
        if self.syntax is not None and syntax is None:
            edits.append((self.syntax.span, ""))
        elif self.syntax is not None and syntax is not None and syntax != self.syntax.value:
            edits.append((self.syntax.value_span, syntax))
        text = self.text
        for span, replacement in sorted(edits, key=lambda edit: edit[0].start, reverse=True):
            text = text[: span.start] + replacement + text[span.end :]
        return text


@dataclass(slots=True)
class _Stage:
    name: str
    needs: set[int] = field(default_factory=set[int])
    images: list[Named] = field(default_factory=list[Named])


def parse_dockerfile(
    text: str,
    *,
    args: Mapping[str, str],
    target: str | None = None,
    platform: str | None = None,
    name: str = "Dockerfile",
) -> Dockerfile:
    """Find the images that the wanted stage needs.

    args: build arguments, which replace the defaults of ARG lines before the first FROM. target: a stage's name or number.
    platform: ``os/arch``, for ``$TARGETPLATFORM`` and the like. Raises ContextError that names file and line.
    """
    top = tuple(directives(text))
    escape = next((directive.value for directive in top if directive.name == "escape"), "\\")
    reader = _Reader(name, args, platform, escape if escape in ("\\", "`") else "\\")
    for instruction in instructions(text, reader.escape):
        reader.read(instruction)
    wanted = reader.stage_index(target)
    images = [image for index in sorted(reader.needed(wanted)) for image in reader.stages[index].images]
    syntax = next((directive for directive in top if directive.name == "syntax"), None)
    return Dockerfile(text=text, images=tuple(images), syntax=syntax)


class _Reader:
    """Collects stages and the images that each of them names."""

    def __init__(self, name: str, args: Mapping[str, str], platform: str | None, escape: str) -> None:
        self._name = name
        self._args = args
        self.escape = escape
        self._values = _platform_values(platform)
        self.stages: list[_Stage] = []

    def read(self, instruction: Instruction) -> None:
        match instruction.keyword:
            case "ARG" if not self.stages:
                self._argument(instruction)
            case "FROM":
                self._from(instruction)
            case "COPY" | "ADD" if self.stages:
                for word in instruction.words:
                    if not word.text.startswith("--"):
                        break
                    if word.text.startswith("--from="):
                        self._other(instruction, Use.COPY, word, len("--from="), len(word.text))
            case "RUN" if self.stages:
                for word in instruction.words:
                    if not word.text.startswith("--"):
                        break
                    if found := _MOUNT_FROM.match(word.text):
                        self._other(instruction, Use.MOUNT, word, found.start(1), found.end(1))
            case _:
                pass

    def _argument(self, instruction: Instruction) -> None:
        for word in instruction.words:
            name, given, default = word.text.partition("=")
            if name in self._args:
                self._values[name] = self._args[name]
            elif given:
                self._values[name] = expand(default, self._values, self.escape)

    def _from(self, instruction: Instruction) -> None:
        words = [word for word in instruction.words if not word.text.startswith("--")]
        if not words:
            raise self._error(instruction, "FROM names no image")
        ref = expand(words[0].text, self._values, self.escape)
        if not ref:
            raise self._error(
                instruction,
                f"{words[0].text} has no value; give it a default in an ARG line, or pass it as a build argument",
            )
        named = len(words) == 3 and words[1].text.upper() == "AS"
        stage = _Stage(name=words[2].text.lower() if named else "")
        earlier = self._earlier(ref)
        if earlier is not None:
            stage.needs.add(earlier)
        elif ref != "scratch":
            stage.images.append(Named(ref, Use.FROM, words[0].span, instruction.line))
        self.stages.append(stage)

    def _other(self, instruction: Instruction, use: Use, word: Word, start: int, end: int) -> None:
        """An image or stage beside the stage's own. The builder replaces no variables there, so neither do we."""
        ref = word.text[start:end].strip("\"'")
        earlier = self._earlier(ref)
        if earlier is None and ref.isdecimal() and int(ref) < len(self.stages) - 1:
            earlier = int(ref)
        if earlier is not None:
            self.stages[-1].needs.add(earlier)
        elif "$" not in ref and ref not in ("", "scratch"):
            length = word.span.end - word.span.start
            if length == len(word.text):  # else a line ends within the name, which no one writes: leave it alone
                span = Span(word.span.start + start, word.span.start + end)
                self.stages[-1].images.append(Named(ref, use, span, instruction.line))

    def _earlier(self, ref: str) -> int | None:
        names = [stage.name for stage in self.stages]
        return len(names) - 1 - names[::-1].index(ref.lower()) if ref.lower() in names and ref else None

    def stage_index(self, target: str | None) -> int:
        if not self.stages:
            raise ContextError(f"{self._name}: it has no FROM line. Start it with FROM and an image.")
        if target is None:
            return len(self.stages) - 1
        earlier = self._earlier(target)
        if earlier is not None:
            return earlier
        if target.isdecimal() and int(target) < len(self.stages):
            return int(target)
        names = ", ".join(stage.name for stage in self.stages if stage.name) or "none has a name"
        raise ContextError(f"{self._name}: it has no stage {target!r}. Its stages: {names}.")

    def needed(self, index: int) -> set[int]:
        found: set[int] = set()
        pending = [index]
        while pending:
            stage = pending.pop()
            if stage not in found:
                found.add(stage)
                pending.extend(self.stages[stage].needs)
        return found

    def _error(self, instruction: Instruction, what: str) -> ContextError:
        return ContextError(f"{self._name}, line {instruction.line}: {what}.")


def _platform_values(platform: str | None) -> dict[str, str]:
    """What BuildKit puts into ``$BUILDPLATFORM``, ``$TARGETARCH`` and the like."""
    import platform as host

    machine = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm/v7"}.get(host.machine(), host.machine())
    own = f"linux/{machine}"
    values: dict[str, str] = {}
    for prefix, value in (("BUILD", own), ("TARGET", platform or own)):
        system, _, rest = value.partition("/")
        architecture, _, variant = rest.partition("/")
        values |= {
            f"{prefix}PLATFORM": value,
            f"{prefix}OS": system,
            f"{prefix}ARCH": architecture,
            f"{prefix}VARIANT": variant,
        }
    return values
