"""Base images that trust the host's extra certificates, so that what a build fetches can be fetched.

A layer on top of a base: the certificates, in the bundles that the image has, and the variables that make common tools read the
system's bundle. Images with the label ``harness.ca`` of these certificates have them already.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from harness.errors import BuildFailed
from harness.images.archive import stream_files
from harness.images.build import Builder, Job, Progress
from harness.images.identity import identity_of, tag_of
from harness.images.trust import BUNDLE, BUNDLE_VARIABLES, TRUST_LABEL, certificates_digest
from harness.ports import EngineImage

_ADDED = "/usr/local/share/ca-certificates"
_PUBLIC = "/usr/local/share/harness/public.pem"

_SCRIPT = f"""set -e
bundle={BUNDLE}
done=
if command -v update-ca-certificates >/dev/null 2>&1; then update-ca-certificates >/dev/null && done=1; fi
if command -v update-ca-trust >/dev/null 2>&1; then
  mkdir -p /etc/pki/ca-trust/source/anchors
  cp {_ADDED}/harness-*.crt /etc/pki/ca-trust/source/anchors/
  update-ca-trust && done=1
fi
for file in "$bundle" /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem; do
  if [ -f "$file" ] && [ -z "$done" ]; then cat {_ADDED}/harness-*.crt >> "$file"; fi
  if [ -f "$file" ] && [ ! -e "$bundle" ]; then mkdir -p "${{bundle%/*}}"; ln -s "$file" "$bundle"; fi
done
if [ ! -e "$bundle" ]; then
  mkdir -p "${{bundle%/*}}"
  cat {_PUBLIC} {_ADDED}/harness-*.crt > "$bundle"
fi
"""


@dataclass(frozen=True, slots=True)
class Trusting:
    """What to start from in place of an image: a reference, and the image that it means."""

    ref: str
    image: EngineImage
    warning: str = ""
    """Why the image could not be made to trust the certificates."""


class Trust:
    """Derives images that trust ``certificates`` (PEM). With none, every image stays as it is."""

    def __init__(self, builder: Builder, certificates: Sequence[bytes]) -> None:
        self._builder = builder
        self._certificates = tuple(certificates)
        self.digest = certificates_digest(self._certificates)

    async def derive(self, image: EngineImage, ref: str, progress: Progress | None = None) -> Trusting:
        """What to start from in place of ``ref``; the same where nothing is to be done or it can't be.

        An image without a shell can't be changed so: it is used as it is, with a warning.
        """
        if not self.digest or image.labels.get(TRUST_LABEL) == self.digest:
            return Trusting(ref, image)
        identity = identity_of("trusted", image.id, self.digest, _SCRIPT)
        base = await pin(self._builder, image.id)
        files = self._files(image, base)
        job = Job(
            identity=identity,
            tag=tag_of("trusted", identity),
            what=f"{ref} with the host's certificates",
            dockerfile="Dockerfile",
            context=lambda: stream_files(files),
            labels={TRUST_LABEL: self.digest},
        )
        try:
            built = await self._builder.ensure(job, progress)
        except BuildFailed as error:
            warning = f"the host's certificates can't be added to {ref}; it is used as it is"
            if progress:
                progress(f"warning: {warning}")
            return Trusting(ref, image, f"{warning}. {error.log_path} says why")
        return Trusting(job.tag, built.image)

    def _files(self, image: EngineImage, base: str) -> dict[str, bytes]:
        from pathlib import Path

        import certifi

        files = {f"certificates/harness-{hashlib.sha256(pem).hexdigest()[:16]}.crt": pem for pem in self._certificates}
        lines = [
            f"FROM {base}",
            "USER 0",
            f"COPY public.pem {_PUBLIC}",
            f"COPY certificates/ {_ADDED}/",
            f"RUN {json.dumps(['/bin/sh', '-c', _SCRIPT])}",
            "ENV " + " ".join(f"{name}={BUNDLE}" for name in BUNDLE_VARIABLES),
            *restore_user(image.user),
        ]
        files["Dockerfile"] = "\n".join(lines).encode() + b"\n"
        files["public.pem"] = Path(certifi.where()).read_bytes()
        return files


def restore_user(user: str) -> list[str]:
    """The line that puts an image's user back after ``USER 0``; an image that names none stays one that names root."""
    return [f"USER {user or '0'}"]


async def pin(builder: Builder, image_id: str) -> str:
    """A tag of our own for exactly this image: builders take no ids in FROM, and other tags can move."""
    tag = tag_of("pinned", image_id.removeprefix("sha256:"))
    await builder.engine.tag_image(image_id, tag)
    return tag
