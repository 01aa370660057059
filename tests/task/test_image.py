"""References to images, as engines read them."""

from __future__ import annotations

import pytest

from harness.task.image import split_tag, with_tag


@pytest.mark.parametrize(
    ("ref", "name", "tag"),
    [
        ("debian", "debian", "latest"),
        ("debian:12", "debian", "12"),
        ("host:5000/a/debian", "host:5000/a/debian", "latest"),
        ("host:5000/a/debian:12", "host:5000/a/debian", "12"),
    ],
)
def test_the_tag_of_a_reference(ref: str, name: str, tag: str) -> None:
    assert split_tag(ref) == (name, tag)
    assert with_tag(ref) == f"{name}:{tag}"


def test_a_digest_needs_no_tag() -> None:
    assert with_tag("host:5000/debian@sha256:00") == "host:5000/debian@sha256:00"
