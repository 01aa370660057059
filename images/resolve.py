"""`ports.Images`: from what a task asks for to an image on the engine."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import assert_never

import anyio

from harness.concurrency import in_thread
from harness.errors import BuildFailed, ContextError
from harness.images.archive import DigestCache, digest_files, stream_context
from harness.images.build import Builder, Built, Job, Progress, default_cache
from harness.images.context import Context, scan_context
from harness.images.dockerfile import Dockerfile, Named, Use, parse_dockerfile
from harness.images.git import Ownership, Usage
from harness.images.identity import Recipe, context_digest, tag_of
from harness.images.mapping import ImageMap
from harness.images.references import Found, References
from harness.images.trust import extra_certificates
from harness.images.trusted import Trust, pin
from harness.ports import EngineImage, ImageEngine
from harness.task.image import DockerfileBuild, ImageRef, ImageSource, ResolvedImage


@dataclass(frozen=True, slots=True)
class _Checked:
    """A build's input as it lies on the disk."""

    context: Context
    digests: Mapping[str, str]
    dockerfile: Dockerfile


@dataclass(frozen=True, slots=True)
class _Base:
    """An image that a Dockerfile names, and what stands in for it: ``ref`` in the rewritten text."""

    named: Named
    found: Found
    ref: str
    image: EngineImage
    warning: str = ""


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """A Dockerfile as the builder gets it, and the id of its syntax image, where that stays."""

    text: str
    syntax: Mapping[str, str]
    warning: str


class ImageResolver:
    """Finds, pulls and builds images on one engine (`ports.Images`).

    image_map: images in place of those that can't be had here.
    certificates: PEM certificates that bases of builds are to trust; None: the host's extra ones, where it has any; ``()``: none.
    cache: the folder for build logs and locks; None: ``$XDG_CACHE_HOME/harness`` or ``~/.cache/harness``.
    """

    def __init__(
        self,
        engine: ImageEngine,
        *,
        image_map: ImageMap = ImageMap(),
        certificates: Sequence[bytes] | None = None,
        cache: Path | None = None,
    ) -> None:
        self._engine = engine
        self._certificates = certificates
        self._builder = Builder(engine, cache or default_cache())
        self._references = References(engine, image_map)
        self._ownership = Ownership(self._builder)
        self._digests = DigestCache()
        self._checks: dict[Path, anyio.Lock] = {}

    @cached_property
    def _trust(self) -> Trust:
        certificates = extra_certificates() if self._certificates is None else self._certificates
        return Trust(self._builder, certificates)

    async def ensure(self, source: ImageSource, *, progress: Progress | None = None) -> ResolvedImage:
        """Find, pull or build it. One build or pull per digest at a time; an unchanged image starts no build.

        Raises ContextError (the user's), BuildFailed, ImageUnavailable or EngineUnreachable.
        """
        match source:
            case ImageRef():
                found = await self._references.find(source.ref, platform=source.platform, progress=progress)
                return _resolved(found.image, ref=source.ref, digest=found.registry_digest, mapped=found.mapped)
            case DockerfileBuild():
                return await self._build(source, progress)
            case _:
                assert_never(source)

    async def with_repositories(
        self,
        image: ResolvedImage,
        *,
        repositories: Sequence[str],
        users: Sequence[str | None],
        workdir: str | None = None,
        progress: Progress | None = None,
    ) -> ResolvedImage:
        """An image in which each user can run git in each repository, and in the one that ``workdir`` lies in.

        repositories: paths in the image. users: who will run git; None is the image's own user. workdir: None is the image's own.
        Raises BuildFailed when a declared repository can't be used.
        """
        folder = posixpath.join(image.workdir or "/", workdir or "")
        usage = Usage(
            repositories=tuple(sorted({posixpath.normpath(posixpath.join(folder, path)) for path in repositories})),
            users=tuple(sorted({user or image.user or "0" for user in users})),
            workdir=posixpath.normpath(folder),
        )
        return await self._ownership.derive(image, usage, progress)

    async def _build(self, source: DockerfileBuild, progress: Progress | None) -> ResolvedImage:
        path = Path(source.dockerfile).absolute()
        async with self._checks.setdefault(path, anyio.Lock()):  # attempts of one task read its files once
            checked = await in_thread(self._check, source, abandon=True)
        bases = [await self._base(named, source, progress) for named in checked.dockerfile.images]
        rewritten = await self._rewritten(checked.dockerfile, bases, progress)
        text = rewritten.text
        recipe = Recipe(
            context=context_digest(checked.context, checked.digests),
            dockerfile=text,
            args=source.args,
            target=source.target,
            platform=source.platform,
            bases={f"{base.named.use} {base.named.ref}": base.image.id for base in bases} | dict(rewritten.syntax),
            certificates=self._trust.digest if any(base.named.use is Use.FROM for base in bases) else "",
        )
        built = await self._builder.ensure(_job(source, checked, text, recipe), progress)
        if built.built:
            await self._check_bases(source, bases)
        finished = self._finished(built, recipe, bases)
        warnings = dict.fromkeys([rewritten.warning, *(base.warning for base in bases)])
        return finished.model_copy(update={"warnings": tuple(filter(None, warnings))})

    def _check(self, source: DockerfileBuild) -> _Checked:
        """Everything about the input that needs no engine. In a thread."""
        context, dockerfile = check_build(source)
        return _Checked(context, digest_files(context, self._digests), dockerfile)

    async def _base(self, named: Named, source: DockerfileBuild, progress: Progress | None) -> _Base:
        found = await self._references.find(named.ref, platform=source.platform, progress=progress)
        ref = found.used
        now = await self._engine.inspect_image(ref)
        if now is None or now.id != found.image.id:  # the tag has moved, on this engine; the run keeps to what it was
            ref = await pin(self._builder, found.image.id)
        if named.use is not Use.FROM:
            return _Base(named, found, ref, found.image)
        trusting = await self._trust.derive(found.image, ref, progress)
        return _Base(named, found, trusting.ref, trusting.image, trusting.warning)

    async def _rewritten(self, dockerfile: Dockerfile, bases: Sequence[_Base], progress: Progress | None) -> _Rewritten:
        """The Dockerfile as the builder gets it.

        A ``# syntax=`` line would make the builder fetch an image from a registry. It stays only when the engine has that image.
        """
        warning = ""
        found = await self._references.local(dockerfile.syntax.value) if dockerfile.syntax else None
        if dockerfile.syntax and not found:
            warning = f"'# syntax={dockerfile.syntax.value}' is left out: the engine doesn't have that image"
            if progress:
                progress(warning)
        names = {base.named: base.ref for base in bases}
        text = dockerfile.rewritten(names, syntax=found.used if found else None)
        return _Rewritten(text, {"syntax": found.image.id} if found else {}, warning)

    async def _check_bases(self, source: DockerfileBuild, bases: Sequence[_Base]) -> None:
        """The identity holds only when the names still mean what they meant before the build."""
        for base in bases:
            now = await self._engine.inspect_image(base.ref)
            if now is None or now.id != base.image.id:
                raise BuildFailed(
                    f"{source.dockerfile}: the image {base.ref} was replaced while it was built upon. Build again.",
                    instruction=f"{base.named.use} {base.named.ref}",
                    log_tail="",
                )

    def _finished(self, built: Built, recipe: Recipe, bases: Sequence[_Base]) -> ResolvedImage:
        mapped = tuple(dict.fromkeys(pair for base in bases for pair in base.found.mapped))
        identity = recipe.identity()
        resolved = _resolved(built.image, ref=tag_of("build", identity), digest=f"sha256:{identity}", mapped=mapped)
        return resolved.model_copy(update={"built": built.built, "build_log": built.log})


def check_build(source: DockerfileBuild) -> tuple[Context, Dockerfile]:
    """Check the build's input without reading its files and without an engine. Blocking; tens of ms for 4,096 files.

    Raises ContextError with every problem of the context, or the first of the Dockerfile.
    """
    context = scan_context(source.dockerfile, root=source.root, limits=source.limits)
    path = context.folder / context.dockerfile
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ContextError(f"{path}: it isn't UTF-8 at byte {error.start}. Save it as UTF-8.") from error
    except OSError as error:
        raise ContextError(f"{path}: can't be read: {error.strerror}.") from error
    dockerfile = parse_dockerfile(
        text, args=source.args, target=source.target, platform=source.platform, name=str(path)
    )
    return context, dockerfile


def _job(source: DockerfileBuild, checked: _Checked, text: str, recipe: Recipe) -> Job:
    identity = recipe.identity()
    content = text.encode()
    return Job(
        identity=identity,
        tag=tag_of("build", identity),
        what=f"the image of {source.dockerfile}",
        dockerfile=checked.context.dockerfile,
        context=lambda: stream_context(checked.context, dockerfile=content, digests=checked.digests),
        args=source.args,
        target=source.target,
        platform=source.platform,
        timeout_s=source.timeout_s,
    )


def _resolved(
    image: EngineImage, *, ref: str, digest: str | None, mapped: tuple[tuple[str, str], ...]
) -> ResolvedImage:
    return ResolvedImage(
        id=image.id,
        ref=ref,
        digest=digest,
        mapped_from=mapped,
        workdir=image.workdir or "/",
        user=image.user,
        env=dict(image.env),
    )
