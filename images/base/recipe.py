"""What the project's own images consist of, and what each of the two ways of making one needs of it.

A recipe is a folder: ``Dockerfile`` for the way through a registry, ``packages.txt`` and ``finish.sh`` for both ways, and where
Debian's slim image is configured differently from a bootstrapped one, the files that level it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.images.archive import tar_files
from harness.images.trust import BUNDLE, BUNDLE_VARIABLES, TRUST_LABEL, certificates_digest
from harness.task.image import BASE_IMAGE, TOOLBOX_IMAGE

SUITE = "bookworm"
START = f"debian:{SUITE}-slim"
"""What both Dockerfiles start from."""

BASE_LABEL = "harness.base"
"""On each of these images: the digest of the recipe that made it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image of the project.

    folder: where its files lie.
    instructions: Dockerfile instructions that a bootstrapped image needs; the Dockerfile has them itself.
    bootstrap: options of mmdebstrap beside the package list; ``{folder}`` is filled in.
    takes_certificates: whether the host's extra certificates go in.
    """

    tag: str
    folder: Path
    instructions: tuple[str, ...]
    bootstrap: tuple[str, ...]
    takes_certificates: bool = False
    _files: tuple[tuple[str, bytes], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        files = tuple((path.name, path.read_bytes()) for path in sorted(self.folder.iterdir()) if path.is_file())
        object.__setattr__(self, "_files", files)

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian packages beyond the minimal system."""
        return tuple(dict(self._files)["packages.txt"].decode().split())

    def labels(self, certificates: Sequence[bytes]) -> dict[str, str]:
        """What tells a current image from one that an older recipe or other certificates made."""
        digest = hashlib.sha256(repr((self._files, self.instructions, self.bootstrap)).encode()).hexdigest()
        labels = {BASE_LABEL: digest}
        if self.takes_certificates:
            labels[TRUST_LABEL] = certificates_digest(certificates)
        return labels

    def environment(self, certificates: Sequence[bytes]) -> tuple[str, ...]:
        """ENV instructions that point programs to the image's certificates; none where there is nothing to add."""
        if not (self.takes_certificates and certificates):
            return ()
        return tuple(f"ENV {variable}={BUNDLE}" for variable in BUNDLE_VARIABLES)

    def dockerfile(self, certificates: Sequence[bytes]) -> bytes:
        """The Dockerfile, with the ENV instructions of the host's certificates at its end."""
        lines = self.environment(certificates)
        return dict(self._files)["Dockerfile"] + "".join(f"{line}\n" for line in lines).encode()

    def files(self, certificates: Sequence[bytes]) -> Iterator[tuple[str, bytes]]:
        """Relative path and content of everything that either way needs beside its program."""
        for name, content in self._files:
            yield name, self.dockerfile(certificates) if name == "Dockerfile" else content
        if self.takes_certificates:
            for certificate in certificates:  # one a file: that's how update-ca-certificates wants them
                yield f"certificates/host-{hashlib.sha256(certificate).hexdigest()[:16]}.crt", certificate

    def context(self, certificates: Sequence[bytes]) -> bytes:
        """The files as a build context, a tar archive."""
        return b"".join(tar_files(dict(self.files(certificates))))

    def changes(self, certificates: Sequence[bytes]) -> tuple[str, ...]:
        """Dockerfile instructions for an image that is imported from a root file system."""
        labels = tuple(f"LABEL {name}={value}" for name, value in self.labels(certificates).items())
        return (*self.instructions, *self.environment(certificates), *labels)

    def mmdebstrap(self, folder: Path) -> tuple[str, ...]:
        """The command that writes the root file system to its standard output, as tar. ``folder`` holds `files`."""
        options = (option.format(folder=folder) for option in self.bootstrap)
        return ("mmdebstrap", f"--include={','.join(self.packages)}", *options, SUITE, "-")


_HERE = Path(__file__).resolve().parent

BASE = Recipe(
    tag=BASE_IMAGE,
    folder=_HERE / SUITE,
    instructions=("ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 'CMD ["bash"]'),
    bootstrap=(
        "--variant=minbase",
        "--dpkgopt={folder}/dpkg.cfg",
        "--aptopt={folder}/apt.conf",
        '--customize-hook=sh "{folder}/finish.sh" "$1" "{folder}/certificates"',
        '--customize-hook=rm -f "$1/etc/hostname" "$1/etc/resolv.conf"',  # the host's: mmdebstrap copies them
    ),
    takes_certificates=True,
)
"""What tasks start from: Debian with bash, git, curl, python3 with pip and venv, CA certificates, procps."""

TOOLBOX = Recipe(
    tag=TOOLBOX_IMAGE,
    folder=_HERE / "toolbox",
    instructions=("ENV PATH=/usr/sbin:/usr/bin:/toolbox/bin", 'CMD ["sh"]'),
    bootstrap=(
        "--variant=extract",
        "--skip=cleanup,output/dev",
        '--extract-hook=sh "{folder}/finish.sh" "$1"',
    ),
)
"""A static bash and busybox in ``/toolbox`` for sandboxes, and iptables for containers that set a sandbox's firewall."""

RECIPES = (BASE, TOOLBOX)
