"""Git ownership: repositories in an image that agent and grader can use, whoever owns their files.

Git refuses a repository that belongs to another user ("dubious ownership"). For each repository that a task declares, and for the one
that the image's working directory lies in, each user that will run git there gets ``safe.directory`` for exactly that path, and only
where the owner differs. It is done in a layer on top of the image, once per image, and verified there by running git as each user.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import structlog

from harness.errors import BuildFailed
from harness.images.archive import stream_files
from harness.images.build import Builder, Job, Progress
from harness.images.identity import identity_of, tag_of
from harness.images.trusted import pin, restore_user
from harness.ports import EngineImage
from harness.task.image import ResolvedImage

log = structlog.get_logger()

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
        self._unusable: set[str] = set()

    async def derive(self, image: ResolvedImage, usage: Usage, progress: Progress | None = None) -> ResolvedImage:
        """The image to use in place of ``image``: itself where nothing is to be mended.

        Raises BuildFailed when a declared repository can't be used, with git's own words.
        """
        if usage.idle:
            return image
        script = _script()
        identity = identity_of("git", image.id, usage.repositories, usage.users, usage.workdir, script)
        if identity in self._unusable:
            return image
        job = self._job(image, usage, identity, script, "")
        known = await self._builder.find(job)
        mended = known.image if known else await self._mend(image, usage, identity, script, progress)
        if mended is None:
            self._unusable.add(identity)
            return image
        return image.model_copy(update={"id": mended.id})

    async def _mend(
        self, image: ResolvedImage, usage: Usage, identity: str, script: str, progress: Progress | None
    ) -> EngineImage | None:
        """None where the image can't run the scripts and the task declares no repository."""
        said: list[str] = []

        def listen(line: str) -> None:
            if _SAID in line and '"' not in line:  # not the instruction, which quotes the script
                said.append(line[line.index(_SAID) :])
                if progress:
                    progress(said[-1])

        job = self._job(image, usage, identity, script, await pin(self._builder, image.id))
        try:
            built = await self._builder.ensure(job, listen)
        except BuildFailed as error:
            if not usage.repositories:
                log.warning("repositories_not_checked", image=image.ref, reason=str(error))
                return None
            raise self._explained(image, usage, said, error) from error
        for line in said:
            if line.startswith(f"{_SAID}warning: "):
                log.warning("repository_not_usable", image=image.ref, reason=line.removeprefix(f"{_SAID}warning: "))
        if _NOTHING in said:
            await self._builder.engine.tag_image(image.id, job.tag)
            return await self._builder.engine.inspect_image(image.id)
        return built.image

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
        reasons = [line.removeprefix(f"{_SAID}error: ") for line in said if line.startswith(f"{_SAID}error: ")]
        what = "; ".join(reasons) or str(error)
        return BuildFailed(
            f"{image.ref}: a repository that the task declares can't be used: {what}",
            instruction=f"git ownership of {', '.join(usage.repositories)}",
            log_tail=error.log_tail,
            log_path=error.log_path,
        )


def _script() -> str:
    return resources.files("harness.images").joinpath("ownership.sh").read_text(encoding="utf-8")
