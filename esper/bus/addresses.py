"""What ESPER_REDIS_URL may name: one server, the nodes of a Cluster, or the Sentinels that know who is in charge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from esper.bus.faults import without_password
from esper.errors import SettingError

PLAIN = ("redis://", "rediss://", "unix://")
MANY = re.compile(
    r"(?P<scheme>rediss?)\+(?P<kind>cluster|sentinel)://"
    r"(?:(?P<user>[^@]*)@)?(?P<hosts>[^/?@]+)(?:/(?P<path>[^?]*))?(?:\?(?P<query>.*))?"
)
PORTS = {"cluster": 6379, "sentinel": 26379}
FORMS = (
    "a URL that begins with redis://, rediss:// or unix://, or redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/NAME, rediss+ for TLS"
)

Node = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Address:
    """Where to ask first. `service` is the name that Sentinels know the primary by; empty: the nodes are a Cluster's.

    `before` and `after` stand around HOST:PORT in the URL of any one server: scheme and user, database and options.
    """

    nodes: tuple[Node, ...]
    service: str
    before: str
    after: str

    def of(self, host: str, port: int) -> str:
        """The URL of one server, under the same user and with the same options."""
        return f"{self.before}{f'[{host}]' if ':' in host else host}:{port}{self.after}"


def address(url: str) -> Address | None:
    """The servers of a URL that names several; None: it names one. SettingError: it names none."""
    if url.startswith(PLAIN):
        return None
    found = MANY.fullmatch(url)
    if found is None:
        raise SettingError("ESPER_REDIS_URL", without_password(url), FORMS)
    kind, path = found["kind"], found["path"] or ""
    service, _, database = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not service:
        raise SettingError("ESPER_REDIS_URL", without_password(url), "the primary's name behind the Sentinels: /NAME")
    if kind == "cluster" and database not in ("", "0"):
        raise SettingError("ESPER_REDIS_URL", without_password(url), "no database: a Cluster has one")
    nodes = tuple(node(part, PORTS[kind], url) for part in found["hosts"].split(","))
    user = "" if found["user"] is None else f"{found['user']}@"
    query = "" if found["query"] is None else f"?{found['query']}"
    return Address(nodes, service, f"{found['scheme']}://{user}", f"/{database or 0}{query}")


def node(text: str, port: int, url: str) -> Node:
    """HOST, HOST:PORT or [HOST]:PORT."""
    try:
        parts = urlsplit(f"//{text}")
        host, given = parts.hostname, parts.port
    except ValueError:
        host, given = None, None
    if not host:
        raise SettingError("ESPER_REDIS_URL", without_password(url), f"HOST:PORT where it says {text!r}")
    return host, given or port
