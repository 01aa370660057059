"""Git ownership: repositories in an image that agent and grader can use, whoever owns their files.

Git refuses a repository that belongs to another user ("dubious ownership"). For each repository that a task declares, and for the one
that the image's working directory lies in, each user that will run git there gets ``safe.directory`` for exactly that path, and only
where the owner differs. It is done in a layer on top of the image, once per image, and verified there by running git as each user.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from harness.errors import BuildFailed
from harness.images.archive import stream_files
from harness.images.build import Builder, Built, Job, Progress
from harness.images.identity import identity_of, tag_of
from harness.images.trusted import pin, restore_user
from harness.task.image import ResolvedImage

_SAID = "harness-git: "
"""What the scripts put before what they have to say."""
_NOTHING = _SAID + "nothing to mend"


@dataclass(frozen=True, slots=True)
class Usage:
    """Who runs git where.

    repositories: declared paths in the image; one that can't be used fails the build.
    users: names, uids or ``uid:gid``. workdir: where a repository is looked for; one that can't be used is only a warning.
    """

    repositories: tuple[str, ...]
    users: tuple[str, ...]
    workdir: str

    @property
    def idle(self) -> bool:
        return not self.repositories and self.workdir == "/"


class Ownership:
    """Derives images whose repositories can be used."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._unusable: dict[str, str] = {}
        """By identity: images that can't be checked, and why."""
        self._warnings: dict[str, tuple[str, ...]] = {}
        """By identity: what the scripts warned of."""

    async def derive(self, image: ResolvedImage, usage: Usage, progress: Progress | None = None) -> ResolvedImage:
        """The image to use in place of ``image``: itself where nothing is to be mended.

        Raises BuildFailed when a declared repository can't be used, with git's own words.
        """
        if usage.idle:
            return image
        script = _script()
        identity = identity_of("git", image.id, usage.repositories, usage.users, usage.workdir, script)
        if (reason := self._unusable.get(identity)) is not None:
            return _warned(image, reason)
        built = await self._builder.find(self._job(image, usage, identity, script, ""))
        if built is None:
            try:
                built = await self._mend(image, usage, identity, script, progress)
            except BuildFailed as error:
                if usage.repositories:
                    raise self._explained(image, usage, _said(error.log_path), error) from error
                reason = f"{image.ref}: whether git works in {usage.workdir} could not be checked: {error}"
                self._unusable[identity] = reason
                return _warned(image, reason)
        if identity not in self._warnings:
            said = _said(built.log)
            self._warnings[identity] = tuple(_told(said, "warning"))
        warnings = [f"{image.ref}: {warning}" for warning in self._warnings[identity]]
        return _warned(image, *warnings).model_copy(update={"id": built.image.id})

    async def _mend(
        self, image: ResolvedImage, usage: Usage, identity: str, script: str, progress: Progress | None
    ) -> Built:
        """The image with a layer that mends it, or the image itself where there was nothing to mend."""
        said: list[str] = []

        def listen(line: str) -> None:
            said.extend(found := _sayings([line]))
            if progress:
                for saying in found:
                    progress(saying)

        job = self._job(image, usage, identity, script, await pin(self._builder, image.id))
        job = replace(job, stands_in=lambda: image.id if _NOTHING in said else None)
        return await self._builder.ensure(job, listen)

    def _job(self, image: ResolvedImage, usage: Usage, identity: str, script: str, base: str) -> Job:
        home = image.env.get("HOME", "")

        def run(*words: str) -> str:
            # The image's id, so that no builder's cache answers for another image of the same layers, and says nothing.
            return "RUN " + json.dumps(["/bin/sh", "-c", script, image.id, *words])

        lines = [
            f"FROM {base}",
            "WORKDIR /",
            "USER 0",
            run("mend", usage.workdir, home, *usage.users, "--", *usage.repositories),
        ]
        for user in usage.users:
            lines += [f"USER {user}", run("verify", usage.workdir, user, *usage.repositories)]
        lines += [f"WORKDIR {image.workdir}", *restore_user(image.user)]
        files = {"Dockerfile": "\n".join(lines).encode() + b"\n"}
        return Job(
            identity=identity,
            tag=tag_of("git", identity),
            what=f"the repositories of {image.ref}",
            dockerfile="Dockerfile",
            context=lambda: stream_files(files),
        )

    def _explained(self, image: ResolvedImage, usage: Usage, said: Sequence[str], error: BuildFailed) -> BuildFailed:
        what = "; ".join(_told(said, "error")) or str(error)
        return BuildFailed(
            f"{image.ref}: a repository that the task declares can't be used: {what}",
            instruction=f"git ownership of {', '.join(usage.repositories)}",
            log_tail=error.log_tail,
            log_path=error.log_path,
        )


def _sayings(lines: Iterable[str]) -> list[str]:
    """What the scripts said, without the instructions, which quote them."""
    return [line[line.index(_SAID) :].rstrip("\n") for line in lines if _SAID in line and '"' not in line]


def _said(log: Path | str | None) -> list[str]:
    """The same from a kept log: also when the build was another's, or an earlier run's."""
    if log is None:
        return []
    try:
        with Path(log).open(encoding="utf-8", errors="replace") as lines:
            return _sayings(lines)
    except OSError:  # someone removed it: nothing depends on it
        return []


def _told(said: Sequence[str], level: str) -> list[str]:
    start = f"{_SAID}{level}: "
    return list(dict.fromkeys(line.removeprefix(start) for line in said if line.startswith(start)))


def _warned(image: ResolvedImage, *warnings: str) -> ResolvedImage:
    return image.model_copy(update={"warnings": tuple(dict.fromkeys([*image.warnings, *warnings]))})


def _script() -> str:
    return resources.files("harness.images").joinpath("ownership.sh").read_text(encoding="utf-8")
