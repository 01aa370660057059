"""Images on a Docker engine: find, pull, build, import, tag."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Sequence
from urllib.parse import quote

from harness.errors import EngineError, ImageUnavailable
from harness.ports import BuildRequest, EngineImage
from harness.sandbox.docker.build import build
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, mapping, text, texts
from harness.task.image import split_tag, with_tag


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
        """Raises ImageUnavailable with the registry's reason."""
        # A name without tag or digest would pull every tag that the repository has.
        params = {"fromImage": with_tag(ref), **({"platform": platform} if platform else {})}
        try:
            async with self.client.open("POST", "/images/create", params=params) as answer:
                async for event in answer.objects():
                    if problem := text(event, "error"):
                        raise ImageUnavailable(f"{ref} can't be pulled: {problem}")
        except ApiError as error:
            raise ImageUnavailable(f"{ref} can't be pulled: {error}") from error
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
