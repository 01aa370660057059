"""The host's extra certificates: what an image needs to trust to reach the network from here.

In many companies TLS passes a proxy whose certificate is in the host's store only. A container that doesn't trust it reaches no
package index. So base images and builds take those certificates of the host that are the host's own: everything in its bundle
that is neither in the public set (certifi) nor in what its distribution packages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

HOST_BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions keep their bundle. ``SSL_CERT_FILE`` goes before all of them."""

HOST_ADDITIONS = (
    Path("/usr/local/share/ca-certificates"),
    Path("/etc/pki/ca-trust/source/anchors"),
    Path("/usr/share/pki/trust/anchors"),
)
"""Where an administrator adds certificates."""

DISTRIBUTION_SETS = (Path("/usr/share/ca-certificates/mozilla"),)
"""Folders with the public certificates that the distribution packages."""

TRUST_LABEL = "harness.ca"
"""On each image that trusts the host's certificates: their digest (`certificates_digest`)."""

BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
"""The bundle of an image that trusts them."""

BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "CURL_CA_BUNDLE",
)
"""Programs that bring certificates of their own find the image's bundle through these."""

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----")


def extra_certificates(environ: Mapping[str, str] = os.environ) -> tuple[bytes, ...]:
    """The host's own certificates, each as one PEM block with a newline at its end, in a stable order.

    Empty where the host has none. Files that can't be read are passed over: they can't be what makes TLS work here.
    """
    import certifi

    public = set(_certificates([Path(certifi.where())]))
    for folder in DISTRIBUTION_SETS:
        public.update(_certificates(_files(folder)))
    return select_extra(_host_files(environ), public=public)


def select_extra(files: Iterable[Path], *, public: Iterable[bytes]) -> tuple[bytes, ...]:
    """The certificates in ``files`` (PEM) that aren't among ``public`` (DER), each once, as PEM, ordered by their digest."""
    extra = set(_certificates(files)).difference(public)
    return tuple(_pem(der) for der in sorted(extra, key=lambda der: hashlib.sha256(der).digest()))


def certificates_digest(certificates: Sequence[bytes]) -> str:
    """What a set of certificates is called in labels and identities: 64 hex digits; ``""`` for none, whatever the order."""
    if not certificates:
        return ""
    return hashlib.sha256(b"".join(sorted(certificates))).hexdigest()


def _host_files(environ: Mapping[str, str]) -> Iterator[Path]:
    if named := environ.get("SSL_CERT_FILE"):
        yield Path(named)
    yield from HOST_BUNDLES
    for folder in HOST_ADDITIONS:
        yield from _files(folder)


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in {".crt", ".pem", ".cer"})
    except OSError:
        return []


def _certificates(files: Iterable[Path]) -> Iterator[bytes]:
    """The DER form of every certificate in PEM files."""
    for path in files:
        try:
            text = path.read_bytes()
        except OSError:
            continue
        for block in _PEM.finditer(text):
            try:
                yield base64.b64decode(block[1], validate=False)
            except binascii.Error:
                continue


def _pem(der: bytes) -> bytes:
    body = base64.b64encode(der)
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return b"\n".join([b"-----BEGIN CERTIFICATE-----", *lines, b"-----END CERTIFICATE-----", b""])
