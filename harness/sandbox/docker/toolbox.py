"""The read-only toolbox: a volume with static tools, filled once from an image that holds them."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import anyio

from harness.concurrency import file_lock
from harness.errors import EngineError, StartFailed
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, items, mapping, text
from harness.sandbox.docker.sweep import remove
from harness.task.image import TOOLBOX_IMAGE

LABEL = "harness.toolbox"
FOLDER = "/toolbox"
"""Where the tools lie in the image."""


class Toolbox:
    """Finds or makes the toolbox's volume, once per engine."""

    def __init__(self, client: EngineClient, image: str = TOOLBOX_IMAGE) -> None:
        self._client = client
        self._image = image
        self._volume = ""
        self._filling = anyio.Lock()

    async def volume(self) -> str:
        """The name of the filled volume. Raises StartFailed when the toolbox's image is missing."""
        async with self._filling:
            if not self._volume:
                self._volume = await self._fill()
        return self._volume

    async def _fill(self) -> str:
        try:
            image = text(await self._client.call("GET", f"/images/{self._image}/json"), "Id")
        except ApiError as error:
            if error.status == 404:
                raise StartFailed(
                    f"the toolbox's image {self._image} isn't on the engine. Run: harness images base"
                ) from error
            raise
        name = f"harness-toolbox-{image.removeprefix('sha256:')[:16]}"
        # Two processes that fill at once could let a sandbox see a volume that is half full.
        async with file_lock(Path(tempfile.gettempdir()) / f"{name}.{os.getuid()}.lock"):
            with anyio.CancelScope(shield=True):
                await self._fill_from(image, name)
        return name

    async def _fill_from(self, image: str, name: str) -> None:
        """The engine copies what an image holds into an empty volume when it creates a container with it. Full ones stay."""
        await self._client.call("POST", "/volumes/create", body={"Name": name, "Labels": {LABEL: image}})
        mount: Json = {"Type": "volume", "Source": name, "Target": FOLDER}
        body: dict[str, Json] = {
            "Image": image,
            "Cmd": ["/toolbox/busybox", "true"],
            "Labels": {LABEL: image},
            "NetworkDisabled": True,
            "HostConfig": {"NetworkMode": "none", "Mounts": [mount]},
        }
        container = text(await self._client.call("POST", "/containers/create", body=body), "Id")
        with suppress(EngineError):  # an unused container of a known image does no harm, and the sweep knows its label
            await self._client.call("DELETE", f"/containers/{container}", params={"force": "1"})


async def remove_old_tools(client: EngineClient, *, dry_run: bool) -> tuple[str, ...]:
    """Remove volumes that were filled from another image than the present toolbox, where no container has them mounted."""
    try:
        present = text(await client.call("GET", f"/images/{TOOLBOX_IMAGE}/json"), "Id")
    except ApiError as error:
        if error.status != 404:
            raise
        present = ""
    unused = {"filters": json.dumps({"label": [LABEL], "dangling": ["true"]})}
    found = items(await client.call("GET", "/volumes", params=unused), "Volumes")
    old = [text(volume, "Name") for volume in found if mapping(volume, "Labels").get(LABEL) != present]
    if dry_run:
        return tuple(old)
    return tuple([name for name in old if await remove(client, f"/volumes/{name}")])
