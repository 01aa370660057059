"""The client against engines that are missing, old, new, slow or broken: a few lines of HTTP on a socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from aiohttp import web

from harness.errors import BuildFailed, EngineError, EngineUnreachable, UnsupportedError
from harness.ports import BuildRequest
from harness.sandbox.docker.address import TcpAddress, UnixAddress, address_from_environment, parse_address
from harness.sandbox.docker.answer import StreamCut
from harness.sandbox.docker.build import build
from harness.sandbox.docker.client import ApiError, EngineClient
from tests.sandbox.conftest import Archive

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def engine(
    tmp_path: Path, *routes: tuple[str, Handler], api: str = "1.41", oldest: str = "1.12"
) -> AsyncIterator[EngineClient]:
    async def version(request: web.Request) -> web.Response:
        return web.json_response({"ApiVersion": api, "MinAPIVersion": oldest})

    application = web.Application()
    application.add_routes([web.get("/version", version), *(web.route("*", path, handler) for path, handler in routes)])
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "socket")).start()
    try:
        async with EngineClient(UnixAddress(str(tmp_path / "socket"))) as client:
            yield client
    finally:
        await runner.cleanup()


async def say_path(request: web.Request) -> web.Response:
    return web.json_response({"path": request.path})


async def test_nothing_answers(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for address in (UnixAddress("/no/such/socket"), UnixAddress(str(tmp_path / "file")), TcpAddress("127.0.0.1", 1)):
        async with EngineClient(address) as client:
            with pytest.raises(EngineUnreachable, match="Is the engine running"):
                await client.call("GET", "/info")
            with pytest.raises(EngineUnreachable, match="Is the engine running"):
                await client.hijack("/exec/1/start")


@pytest.mark.parametrize(
    ("api", "oldest", "spoken"), [("1.41", "1.12", "1.41"), ("1.51", "1.24", "1.41"), ("1.52", "1.44", "1.44")]
)
async def test_an_engine_is_spoken_to_in_a_version_that_it_knows(
    tmp_path: Path, api: str, oldest: str, spoken: str
) -> None:
    async with engine(tmp_path, (f"/v{spoken}/info", say_path), api=api, oldest=oldest) as client:
        assert await client.call("GET", "/info") == {"path": f"/v{spoken}/info"}


async def test_an_engine_that_is_too_old_is_refused(tmp_path: Path) -> None:
    async with engine(tmp_path, api="1.40") as client:
        with pytest.raises(UnsupportedError, match=r"Docker 20\.10"):
            await client.call("GET", "/info")


async def test_an_error_has_its_status_and_message(tmp_path: Path) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({"message": "no space left"}, status=507)

    async def crash(request: web.Request) -> web.Response:
        return web.Response(text="<html>", status=502)

    async with engine(tmp_path, ("/v1.41/a", refuse), ("/v1.41/b", crash)) as client:
        for call in (client.call("POST", "/a"), client.hijack("/a")):
            with pytest.raises(ApiError, match="no space left") as caught:
                await call
            assert caught.value.status == 507
        with pytest.raises(ApiError, match="<html>"):
            await client.call("GET", "/b")


async def test_an_answer_that_is_cut_off_is_an_error(tmp_path: Path) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with engine(tmp_path, ("/v1.41/a", cut)) as client:
        with pytest.raises(StreamCut):
            await client.call("GET", "/a")


async def test_an_answer_that_is_no_json_is_an_error(tmp_path: Path) -> None:
    async def garble(request: web.Request) -> web.Response:
        return web.Response(body=b'{"Id": \xff\xfe', content_type="application/json")

    async with engine(tmp_path, ("/v1.41/a", garble)) as client:
        with pytest.raises(EngineError, match="isn't JSON"):
            await client.call("GET", "/a")
        async with client.open("GET", "/a") as answer:
            with pytest.raises(EngineError, match="isn't JSON"):
                _ = [document async for document in answer.objects()]


async def test_a_socket_that_speaks_http_but_is_no_engine_is_an_error(tmp_path: Path) -> None:
    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    application = web.Application()
    application.add_routes([web.get("/version", page)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "socket")).start()
    async with EngineClient(UnixAddress(str(tmp_path / "socket"))) as client:
        with pytest.raises(EngineError, match="Does a Docker engine listen there"):
            await client.call("GET", "/info")
    await runner.cleanup()


async def test_an_error_that_is_cut_off_is_an_error_of_the_engines(tmp_path: Path) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=500, headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    async with engine(tmp_path, ("/v1.41/a", cut)) as client:
        with pytest.raises(EngineError):
            await client.call("GET", "/a")


async def test_an_answer_that_is_too_long_is_not_read_to_its_end(tmp_path: Path) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(bytes(10_000))

    async with engine(tmp_path, ("/v1.41/a", endless)) as client:
        with pytest.raises(EngineError, match="longer than 100,000 bytes"):
            await client.call("GET", "/a", max_bytes=100_000)


async def test_an_engine_that_hangs_up_is_unreachable(tmp_path: Path) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    async with engine(tmp_path, ("/v1.41/a", hang_up)) as client:
        with pytest.raises(EngineUnreachable):
            await client.call("POST", "/a")
        with pytest.raises(EngineUnreachable):
            await client.hijack("/a")


async def test_an_engine_that_answers_too_late_is_not_called_unreachable(tmp_path: Path) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        await anyio.sleep(5)
        return web.Response()

    async with engine(tmp_path, ("/v1.41/a", slow)) as client:
        with pytest.raises(EngineError, match=r"within 0\.1 s") as caught:
            await client.call("POST", "/a", timeout_s=0.1)
        assert not isinstance(caught.value, EngineUnreachable)


@pytest.mark.parametrize("speaks", [True, False])
async def test_a_silent_engine_is_not_waited_for_for_ever(tmp_path: Path, speaks: bool) -> None:
    async def silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        if speaks:
            await response.prepare(request)
            await response.write(b"half")
        await anyio.sleep(5)
        return response

    async with engine(tmp_path, ("/v1.41/a", silent)) as client:
        with pytest.raises(EngineError, match=r"silent for 0\.2 s"):
            async with client.open("GET", "/a", patience_s=0.2) as answer:
                _ = [chunk async for chunk in answer.chunks()]


async def test_a_slow_upload_goes_on_while_the_engine_takes_it(tmp_path: Path) -> None:
    async def slow(request: web.Request) -> web.Response:
        return web.Response(text=str(len(await request.read())))

    async def trickle() -> AsyncIterator[bytes]:
        for _ in range(8):
            await anyio.sleep(0.1)
            yield b"x"

    async with (
        engine(tmp_path, ("/v1.41/a", slow)) as client,
        client.open("PUT", "/a", content=trickle(), patience_s=0.4) as answer,
    ):
        assert await answer.whole(100) == b"8"


async def test_progress_is_read_document_by_document(tmp_path: Path) -> None:
    async def progress(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (b'{"a": 1}\r\n{"a', b'": "\xc3', b'\xa9"}\r\n\r\n', b'{"a": 3}'):
            await response.write(piece)
        return response

    async with engine(tmp_path, ("/v1.41/a", progress)) as client, client.open("POST", "/a") as answer:
        assert [document async for document in answer.objects()] == [{"a": 1}, {"a": "é"}, {"a": 3}]


async def test_without_buildkit_the_classic_builder_is_asked(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    async def builder(request: web.Request) -> web.Response:
        asked.append((request.query["version"], len(await request.read())))
        refused = request.query["version"] == "2"
        return web.json_response({"message": "no BuildKit"}, status=400) if refused else web.json_response({})

    async with engine(tmp_path, ("/v1.41/build", builder)) as client:
        context = Archive().add("Dockerfile", b"FROM scratch")
        lines: list[str] = []
        await build(client, BuildRequest(context=context, dockerfile="Dockerfile", tag="a"), lines.append)
        assert [version for version, _ in asked] == ["2", "1"]
        assert asked[0][1] == asked[1][1] > 0
        assert "classic builder" in lines[0]
        once = BuildRequest(context=aiter(context), dockerfile="Dockerfile", tag="a")
        with pytest.raises(BuildFailed, match="no BuildKit"):
            await build(client, once, lines.append)


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("unix:///run/user/1000/docker.sock", UnixAddress("/run/user/1000/docker.sock")),
        ("tcp://127.0.0.1:2375", TcpAddress("127.0.0.1", 2375)),
        ("tcp://engine", TcpAddress("engine", 2375)),
    ],
)
def test_addresses(value: str, address: UnixAddress | TcpAddress) -> None:
    assert parse_address(value) == address
    assert address_from_environment({"DOCKER_HOST": value}) == address


@pytest.mark.parametrize(
    "value", ["ssh://host", "npipe:////./pipe/docker_engine", "unix://", "docker", "tcp://host:port"]
)
def test_other_addresses_are_refused_with_a_remedy(value: str) -> None:
    with pytest.raises(UnsupportedError, match="DOCKER_HOST"):
        parse_address(value)


def test_tls_is_refused_and_the_default_is_dockers_socket() -> None:
    with pytest.raises(UnsupportedError, match="DOCKER_TLS_VERIFY"):
        address_from_environment({"DOCKER_HOST": "tcp://host:2376", "DOCKER_TLS_VERIFY": "1"})
    with pytest.raises(UnsupportedError, match="DOCKER_TLS_VERIFY"):
        address_from_environment({"DOCKER_TLS_VERIFY": "1"}, host="tcp://host:2376")
    assert address_from_environment({}) == UnixAddress("/var/run/docker.sock")
