"""Where the engine listens, as ``DOCKER_HOST`` says it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from harness.errors import UnsupportedError

DEFAULT_SOCKET = "/var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str

    def __str__(self) -> str:
        return f"unix://{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"tcp://{self.host}:{self.port}"


EngineAddress = UnixAddress | TcpAddress


def parse_address(value: str) -> EngineAddress:
    """``unix://PATH`` or ``tcp://HOST[:PORT]`` (without TLS). Raises UnsupportedError for anything else."""
    parts = urlsplit(value)
    if parts.scheme == "unix" and parts.path:
        return UnixAddress(parts.netloc + parts.path)
    if parts.scheme == "tcp" and parts.hostname:
        try:
            return TcpAddress(parts.hostname, parts.port or 2375)
        except ValueError as error:
            raise UnsupportedError(
                f"DOCKER_HOST or [engine] host is {value!r}: {error}. Use tcp://HOST:PORT"
            ) from error
    raise UnsupportedError(
        f"DOCKER_HOST or [engine] host is {value!r}: only unix://PATH and tcp://HOST:PORT (without TLS) can be used. "
        "Forward the engine's socket (ssh -L) and name the forwarded one"
    )


def address_from_environment(environment: Mapping[str, str] = os.environ, *, host: str | None = None) -> EngineAddress:
    """What ``host`` names, else ``DOCKER_HOST``, else Docker's own socket. Raises UnsupportedError."""
    named = host or environment.get("DOCKER_HOST", "")
    if not named:
        return UnixAddress(DEFAULT_SOCKET)
    address = parse_address(named)
    if isinstance(address, TcpAddress) and environment.get("DOCKER_TLS_VERIFY"):
        raise UnsupportedError(
            "DOCKER_TLS_VERIFY is set: an engine behind TLS can't be used. Forward its socket (ssh -L) and name the forwarded one"
        )
    return address
