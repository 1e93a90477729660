"""What ESPER_REDIS_URL may name: one server, the nodes of a Cluster, or the Sentinels that know who is in charge."""

from __future__ import annotations

from dataclasses import dataclass

from esper.bus.client.urls import FORM, Node, behind, node, unfit
from esper.bus.faults import without_password
from esper.errors import SettingError

PORTS = {"cluster": 6379, "sentinel": 26379}


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
    if expected := unfit(url):
        raise SettingError("ESPER_REDIS_URL", without_password(url), expected)
    found = FORM.fullmatch(url)
    assert found is not None
    kind = found["kind"]
    if kind is None:
        return None
    hosts, path = behind(found["place"])
    service, _, database = path.partition("/") if kind == "sentinel" else ("", "", path)
    nodes = tuple(node(part, PORTS[kind]) for part in hosts)
    user = "" if found["user"] is None else f"{found['user']}@"
    query = "" if found["query"] is None else f"?{found['query']}"
    return Address(nodes, service, f"{found['scheme']}://{user}", f"/{database or 0}{query}")
