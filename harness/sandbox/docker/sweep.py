"""Removes what dead owners left on the engine, and what outlived its lease."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from harness.ports import Reaped
from harness.sandbox.docker import owner
from harness.sandbox.docker.client import ApiError, EngineClient
from harness.sandbox.docker.json import Json, items, mapping, text

GONE_STATUSES = (404, 409)
"""Already removed, or being removed, or (a network, a volume) used by something that isn't ours."""


@dataclass(frozen=True, slots=True)
class _Found:
    id: str
    name: str
    labels: Mapping[str, str]

    def abandoned(self, now: float) -> bool:
        lease = self.labels.get(owner.LEASE, "")
        if lease.isdecimal() and int(lease) <= now:
            return True
        return self.life is owner.Life.DEAD

    @property
    def life(self) -> owner.Life | None:
        """The owner's; None where nothing says whose it is."""
        holder = owner.parse_owner(self.labels.get(owner.OWNER, ""))
        return holder.life() if holder is not None else None


async def sweep(client: EngineClient, *, run: str | None, dry_run: bool, spare_living: bool = False) -> Reaped:
    """What was removed, or would be: ids of containers and networks, names of volumes.

    Without ``run``: where the owner is dead or the lease has ended. With it: everything of that run, whoever owns it, or only what
    no living process of this machine owns.
    """
    now = time.time()
    label = owner.OWNER if run is None else f"{owner.RUN}={run}"
    params = {"filters": json.dumps({"label": [label]})}

    async def wanted(path: str, *where: str, key: str, extra: Mapping[str, str] = {}) -> list[_Found]:
        answer = await client.call("GET", path, params={**params, **extra})
        found = [_found(item, key) for item in items(answer, *where)]
        return [item for item in found if item.id and (run is not None or item.abandoned(now))]

    containers = await wanted("/containers/json", key="Id", extra={"all": "1"})
    networks = await wanted("/networks", key="Id")
    volumes = await wanted("/volumes", "Volumes", key="Name")
    spared = tuple(c.id for c in containers if spare_living and c.life is owner.Life.ALIVE)
    if spare_living:
        containers, networks, volumes = (
            [item for item in found if item.life is not owner.Life.ALIVE] for found in (containers, networks, volumes)
        )
    if dry_run:
        ids = [tuple(item.id for item in found) for found in (containers, networks, volumes)]
        return Reaped(*ids, spared=spared)
    return Reaped(
        spared=spared,
        sandboxes=tuple([c.id for c in containers if await remove(client, f"/containers/{c.id}", force=True)]),
        networks=tuple([n.id for n in networks if await remove(client, f"/networks/{n.id}")]),
        volumes=tuple([v.id for v in volumes if await remove(client, f"/volumes/{v.id}", force=True)]),
    )


def _found(item: Json, key: str) -> _Found:
    return _Found(id=text(item, key), name=text(item, "Name"), labels=mapping(item, "Labels"))


async def remove(client: EngineClient, path: str, *, force: bool = False) -> bool:
    """False when it has gone already, or something uses it."""
    params = {"force": "1", "v": "1"} if force else {}
    try:
        await client.call("DELETE", path, params=params)
    except ApiError as error:
        if error.status in GONE_STATUSES or (error.status == 403 and path.startswith("/networks/")):
            return False
        raise
    return True
