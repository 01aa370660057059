from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import ContextError
from harness.images.dockerfile import Dockerfile, Use, parse_dockerfile
from harness.images.variables import expand


def parse(text: str, *, target: str | None = None, **args: str) -> Dockerfile:
    return parse_dockerfile(text, args=args, target=target, platform="linux/arm64")


def refs(text: str, *, target: str | None = None, **args: str) -> list[str]:
    return [named.ref for named in parse(text, target=target, **args).images]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("FROM a:1\n", ["a:1"]),
        ("from a AS b\nRUN x", ["a"]),
        ("FROM scratch\nCOPY x y\n", []),
        ("FROM --platform=$BUILDPLATFORM a as b\nFROM B\n", ["a"]),
        ("FROM a@sha256:0f\n", ["a@sha256:0f"]),
        ("# a comment\n\n  # FROM x\nFROM a\n", ["a"]),
        ("FROM \\\n  # between\n\n  a \\\n  AS b\n", ["a"]),
        ("# escape=`\nFROM `\n a\nRUN c:\\\nFROM d\n", ["d"]),
        ("FROM a\r\nRUN x\r\n", ["a"]),
        ("\ufeffFROM a\n", ["a"]),
        ("FROM a\nRUN cat <<EOF\nFROM b\nEOF\nCOPY --from=c x y\n", ["a", "c"]),
        ("FROM a\nRUN cat <<-'EOF' >x && cat <<E2\n\tFROM b\n\tEOF\nFROM c\nE2\nRUN y\n", ["a"]),
        ("FROM a\nRUN echo \"<<EOF\"\nCOPY --from=b x y\n", ["a", "b"]),
        ("FROM a\nRUN echo $((1 <<N))\nCOPY --from=b x y\n", ["a", "b"]),
        ("FROM a\nCOPY --chown=1:1 --from=b x y\nADD --from=d x y\n", ["a", "b", "d"]),
        ("FROM a AS one\nFROM b\nCOPY --from=one x y\nCOPY --from=0 x y\n", ["a", "b"]),
        ("FROM a\nRUN --mount=type=bind,from=b,target=/x --mount=from=c,target=/y cmd --mount=from=d\n", ["a", "b", "c"]),
        ("FROM a\nCOPY --from=$B x y\n", ["a"]),
        ("FROM a\nRUN echo FROM b\nLABEL x=\"COPY --from=c\"\n", ["a"]),
        ("FROM $TARGETARCH/a\n", ["arm64/a"]),
    ],
)  # fmt: skip
def test_the_images_that_a_dockerfile_names(text: str, expected: list[str]) -> None:
    assert refs(text) == expected


def test_only_the_stages_that_the_target_needs() -> None:
    text = "FROM a AS one\nFROM b AS two\nCOPY --from=one x y\nFROM c AS three\nFROM two AS four\nFROM d\n"
    assert refs(text) == ["d"]
    assert refs(text, target="four") == ["a", "b"]
    assert refs(text, target="2") == ["c"]
    with pytest.raises(ContextError, match=r"no stage 'five'\. Its stages: one, two, three, four"):
        refs(text, target="five")


def test_arguments_before_from() -> None:
    text = 'ARG TAG=1 NAME="some name"\nARG FULL=py:${TAG}-slim\nARG NONE\nFROM ${FULL}${NONE:+-x}\n'
    assert refs(text) == ["py:1-slim"]
    assert refs(text, TAG="2") == ["py:2-slim"]
    assert refs(text, FULL="z", NONE="n") == ["z-x"]
    assert refs("ARG A\nFROM ${A:-${B:-deep}}\n", B="undeclared") == ["deep"], (
        "an argument counts only where it is declared"
    )
    with pytest.raises(ContextError, match="line 2: \\$A has no value"):
        refs("ARG A\nFROM $A\n")


def test_no_from_is_an_error() -> None:
    with pytest.raises(ContextError, match="no FROM line"):
        refs("RUN x\n")


def test_names_are_replaced_in_place_and_nothing_else() -> None:
    text = (
        "# syntax=docker/dockerfile:1\n# escape=\\\nARG V=3\nFROM --platform=linux/amd64 py:${V} AS a # py:3\n"
        "COPY --from=py:3 /x /y\nRUN --mount=type=bind,from=tools,target=/t echo py:3\n"
    )
    parsed = parse(text)
    new = {named: f"new{index}" for index, named in enumerate(parsed.images)}
    assert [named.use for named in parsed.images] == [Use.FROM, Use.COPY, Use.MOUNT]
    expected = (
        "# escape=\\\nARG V=3\nFROM --platform=linux/amd64 new0 AS a # py:3\n"
        "COPY --from=new1 /x /y\nRUN --mount=type=bind,from=new2,target=/t echo py:3\n"
    )
    assert parsed.rewritten(new) == expected
    assert parsed.rewritten(new, syntax="local/front") == "# syntax=local/front\n" + expected
    assert parsed.rewritten({}, syntax="docker/dockerfile:1") == text


def test_a_syntax_line_counts_only_at_the_top() -> None:
    assert parse("# words\n# syntax=x\nFROM a\n").syntax is None
    found = parse("# SYNTAX = x/y:1\nFROM a\n").syntax
    assert found is not None and found.value == "x/y:1"


name = st.from_regex(r"[a-z][a-z0-9]{0,5}(:[a-z0-9]{1,4})?", fullmatch=True).filter(lambda ref: ref != "scratch")


@given(st.lists(name, min_size=1, max_size=5), name)
def test_replacing_every_name_leaves_only_the_new_one(names: list[str], new: str) -> None:
    text = "".join(f"FROM {ref}\nRUN echo \\\n  FROM x\n" for ref in names)
    text += "".join(f"COPY --from={ref} a b\n" for ref in names)
    parsed = parse(text)
    again = parse(parsed.rewritten(dict.fromkeys(parsed.images, new)))
    assert {named.ref for named in again.images} == {new}
    assert len(again.images) == len(parsed.images)
    assert parsed.rewritten({named: named.ref for named in parsed.images}) == text


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("$A-$B", "1-"),
        ("${A}x", "1x"),
        ("${E-d}${E:-d}", "d"),
        ("${A:+y}${B:+y}${E+y}", "yy"),
        ("\\$A'$A'\"$A\"", "$A$A1"),
        ("$", "$"),
        ("${A", "1"),
        ("$1", "$1"),
    ],
)
def test_variables(word: str, expected: str) -> None:
    assert expand(word, {"A": "1", "E": ""}) == expected
