"""Images on a Docker engine: find, pull, build, import, tag, list, remove."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence
from urllib.parse import quote

import anyio

from harness.errors import EngineError, ImageUnavailable
from harness.ports import BuildRequest, EngineImage, StoredImage
from harness.sandbox.docker.build import build
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, items, mapping, text, texts
from harness.sandbox.docker.sweep import GONE_STATUSES
from harness.sandbox.docker.toolbox import remove_old_tools
from harness.task.image import split_tag, with_tag

PULL_STALLED_S = 300.0
"""How long a pull may be without progress: a registry that accepts a connection and says nothing would hold an attempt for ever."""
NO_NAME = "<none>"
"""What the engine lists as the name of an image that has none."""


class DockerImages:
    """`ports.ImageEngine` over a client that its owner opens and closes."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client

    async def inspect_image(self, ref: str) -> EngineImage | None:
        try:
            answer = await self.client.call("GET", f"/images/{quote(ref, safe='/:@')}/json")
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return _image(answer)

    async def pull_image(self, ref: str, *, platform: str | None = None) -> EngineImage:
        """Raises ImageUnavailable with the registry's reason, or when there is no progress for `PULL_STALLED_S`."""
        # A name without tag or digest would pull every tag that the repository has.
        params = {"fromImage": with_tag(ref), **({"platform": platform} if platform else {})}
        try:
            with anyio.move_on_after(PULL_STALLED_S) as patience:
                async with self.client.open("POST", "/images/create", params=params) as answer:
                    async for event in answer.objects():
                        patience.deadline = anyio.current_time() + PULL_STALLED_S
                        if problem := text(event, "error"):
                            raise ImageUnavailable(f"{ref} can't be pulled: {problem}")
        except ApiError as error:
            raise ImageUnavailable(f"{ref} can't be pulled: {error}") from error
        if patience.cancelled_caught:
            raise ImageUnavailable(f"{ref} can't be pulled: there was no news of it for {PULL_STALLED_S:g} s")
        return await self._existing(ref)

    async def build_image(self, request: BuildRequest, log: Callable[[str], None]) -> EngineImage:
        """Raises BuildFailed with the failing instruction and the log's end."""
        await build(self.client, request, log)
        return await self._existing(request.tag)

    async def import_image(
        self, archive: AsyncIterable[bytes], tag: str, *, changes: Sequence[str] = ()
    ) -> EngineImage:
        """An image of one layer from a root file system. What ``archive`` raises is passed on."""
        name, version = split_tag(tag)
        params = [("fromSrc", "-"), ("repo", name), ("tag", version), *(("changes", change) for change in changes)]
        async with self.client.open("POST", "/images/create", params=params, content=archive) as answer:
            async for event in answer.objects():
                if problem := text(event, "error"):
                    raise EngineError(f"{tag} can't be imported: {problem}")
        return await self._existing(tag)

    async def tag_image(self, ref: str, tag: str) -> None:
        """Raises ImageUnavailable when the engine doesn't have ``ref``."""
        name, version = split_tag(tag)
        try:
            await self.client.call(
                "POST", f"/images/{quote(ref, safe='/:@')}/tag", params={"repo": name, "tag": version}
            )
        except ApiError as error:
            if error.status == 404:
                raise ImageUnavailable(f"{ref} isn't on the engine: {error}") from error
            raise

    async def list_images(self) -> tuple[StoredImage, ...]:
        images = await self.client.call("GET", "/images/json")
        containers = await self.client.call("GET", "/containers/json", params={"all": "1"})
        used = {text(container, "ImageID") for container in items(containers)}
        return tuple(
            StoredImage(
                id=text(image, "Id"),
                tags=tuple(tag for tag in texts(image, "RepoTags") if not tag.startswith(NO_NAME)),
                repo_digests=tuple(name for name in texts(image, "RepoDigests") if not name.startswith(NO_NAME)),
                labels=mapping(image, "Labels"),
                used=text(image, "Id") in used,
            )
            for image in items(images)
        )

    async def remove_image(self, ref: str) -> bool:
        try:
            await self.client.call("DELETE", f"/images/{quote(ref, safe='/:@')}")
        except ApiError as error:
            if error.status in GONE_STATUSES:
                return False
            raise
        return True

    async def remove_old_tools(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the tools of older toolbox images, where no sandbox uses them. Gives the names of their volumes."""
        return await remove_old_tools(self.client, dry_run=dry_run)

    async def _existing(self, ref: str) -> EngineImage:
        image = await self.inspect_image(ref)
        if image is None:
            raise ImageUnavailable(f"{ref} was removed from the engine just after it had been made")
        return image


def _image(answer: Json) -> EngineImage:
    variables = (entry.partition("=") for entry in texts(answer, "Config", "Env"))
    return EngineImage(
        id=text(answer, "Id"),
        tags=texts(answer, "RepoTags"),
        repo_digests=texts(answer, "RepoDigests"),
        labels=mapping(answer, "Config", "Labels"),
        env={name: value for name, _, value in variables},
        workdir=text(answer, "Config", "WorkingDir") or "/",
        user=text(answer, "Config", "User"),
        architecture=text(answer, "Architecture"),
    )
