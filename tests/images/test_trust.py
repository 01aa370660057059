from __future__ import annotations

import base64
from pathlib import Path

import certifi

from harness.images import trust


def pem(content: bytes) -> bytes:
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(content) + b"-----END CERTIFICATE-----\n"


def test_what_is_not_public_is_extra_once_and_in_a_stable_order(tmp_path: Path) -> None:
    (tmp_path / "bundle").write_bytes(b"# ours\n" + pem(b"public") + pem(b"ours") + pem(b"other"))
    (tmp_path / "again.crt").write_bytes(pem(b"ours").replace(b"\n", b"\r\n"))
    (tmp_path / "key").write_bytes(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    files = [tmp_path / "bundle", tmp_path / "again.crt", tmp_path / "key", tmp_path / "missing"]
    found = trust.select_extra(files, public=[b"public"])
    assert sorted(found) == sorted([pem(b"ours"), pem(b"other")])
    assert trust.select_extra(reversed(files), public=[b"public"]) == found


def test_the_host_has_none_when_its_bundle_is_the_public_one(tmp_path: Path) -> None:
    public = trust.select_extra([Path(certifi.where())], public=[])
    assert len(public) > 50
    found = trust.extra_certificates({})
    assert not set(found) & set(public)


def test_the_bundle_that_the_environment_names_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.pem").write_bytes(pem(b"mine"))
    assert pem(b"mine") in trust.extra_certificates({"SSL_CERT_FILE": str(tmp_path / "mine.pem")})
    assert pem(b"mine") not in trust.extra_certificates({})


def test_a_digest_knows_no_order_and_none_is_empty() -> None:
    assert trust.certificates_digest([]) == ""
    assert trust.certificates_digest([b"a", b"b"]) == trust.certificates_digest([b"b", b"a"])
    assert trust.certificates_digest([b"a"]) != trust.certificates_digest([b"b"])
