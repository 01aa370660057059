"""Reading the server name that a TLS client asks for, before anything is answered."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

RECORD_HANDSHAKE = 0x16
"""First byte of a TLS connection."""

MAX_HELLO_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class ServerName:
    """The name in a complete ClientHello; None where the client sends none."""

    name: str | None


class HelloReader:
    """Takes the bytes of a connection's beginning until they hold a whole ClientHello, or can't become one.

    OpenSSL reads them, as the server's side of a handshake that is given up once the name is known.
    """

    def __init__(self) -> None:
        self._incoming = ssl.MemoryBIO()
        self._found: ServerName | None = None
        self._size = 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.sni_callback = self._named
        self._tls = context.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)

    def _named(self, _object: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
        self._found = ServerName(name)
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR

    def feed(self, data: bytes) -> ServerName | None:
        """The name once it is known, None while bytes are missing. Raises ValueError when this is no TLS handshake."""
        if self._size == 0 and data and data[0] != RECORD_HANDSHAKE:
            raise ValueError("this is not TLS")
        self._size += len(data)
        if self._size > MAX_HELLO_BYTES:
            raise ValueError("the TLS greeting is too long")
        self._incoming.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLError as error:
            if self._found is None:
                raise ValueError("this TLS greeting can't be read") from error
        return self._found
