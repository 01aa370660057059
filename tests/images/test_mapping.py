from __future__ import annotations

import pytest

from harness.images.mapping import ImageMap


@pytest.mark.parametrize(
    ("pattern", "ref", "fits"),
    [
        ("python:3.13-slim*", "python:3.13-slim", True),
        ("python:3.13-slim*", "python:3.13-slim-bookworm", True),
        ("python:3.13-slim*", "python:3.13-slim@sha256:0123", True),
        ("python:3.13-slim*", "docker.io/library/python:3.13-slim", True),
        ("python:3.13-slim*", "python:3.13", False),
        ("python:3.13-slim*", "ghcr.io/python:3.13-slim", False),
        ("ubuntu:latest", "ubuntu", True),
        ("ubuntu", "ubuntu", True),
        ("ubuntu", "ubuntu:24.04", False),
        ("*", "localhost:5000/a/b", True),
        ("org/*", "docker.io/org/a:1", True),
        ("docker.io/org/*", "docker.io/org/a:1", True),
    ],
)
def test_which_references_a_pattern_fits(pattern: str, ref: str, fits: bool) -> None:
    assert ImageMap({pattern: "local/x"}).replacement(ref) == ("local/x" if fits else None)


def test_the_first_pattern_decides_and_its_image_is_not_looked_up_again() -> None:
    images = ImageMap({"a:1": "b:1", "a:*": "c:1", "b:*": "d:1"})
    assert [images.replacement(ref) for ref in ("a:1", "a:2", "b:1")] == ["b:1", "c:1", "d:1"]
