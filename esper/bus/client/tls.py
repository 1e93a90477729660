"""Connections over TLS that share a context: making one reads all authorities of the system, 36 ms of CPU each time."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from typing import Any

from redis.asyncio.connection import RedisSSLContext, SSLConnection

from esper.bus.client.abort import AbortOnDisconnect

RARE = ("include_verify_flags", "exclude_verify_flags", "ca_data", "ca_path")
"""Options of a URL that few name: with these each connection makes a context of its own, as the library does."""
FILES = ("ca_certs", "certfile", "keyfile")


class TlsConnection(AbortOnDisconnect, SSLConnection):
    """As the library's, but that where the URL names an authority no other one is trusted."""

    def _connection_arguments(self) -> Any:
        """A file that was replaced meanwhile is read again, at the next connection."""
        wanted: Any = self.ssl_context
        if any(getattr(wanted, name, None) for name in RARE):
            return super()._connection_arguments()
        settings = tuple((name, getattr(wanted, name)) for name in wanted.__slots__ if name != "context")
        wanted.context = shared(settings, tuple(changed(getattr(wanted, name)) for name in FILES))
        return super()._connection_arguments()


@lru_cache(maxsize=8)
def shared(settings: tuple[tuple[str, Any], ...], _: tuple[int, ...]) -> ssl.SSLContext:
    """The context of these settings, for as long as the files that they name stay as they are."""
    wanted: Any = RedisSSLContext(**dict(settings))
    if wanted.ca_certs is None:
        made: ssl.SSLContext = wanted.get()
        return made
    made = ssl.create_default_context(cafile=wanted.ca_certs)
    made.check_hostname, made.verify_mode = wanted.check_hostname, wanted.cert_reqs
    if wanted.certfile is not None:
        made.load_cert_chain(wanted.certfile, wanted.keyfile, wanted.password)
    if wanted.min_version is not None:
        made.minimum_version = wanted.min_version
    if wanted.ciphers is not None:
        made.set_ciphers(wanted.ciphers)
    return made


def changed(path: str | None) -> int:
    """When the file was written, in nanoseconds; 0: there is none, which whoever reads it says."""
    try:
        return os.stat(path).st_mtime_ns if path is not None else 0
    except OSError:
        return 0
