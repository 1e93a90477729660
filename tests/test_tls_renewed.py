"""Certificates that run out or are replaced while a process lives: it waits, says why, and goes on with new ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from esper.bus import connect
from esper.bus.client.credentials import completed
from esper.bus.embedded import EmbeddedRedis, asked
from esper.bus.faults import LostError, UntrustedError
from esper.bus.outage import Outage
from esper.errors import BusError
from tests.many_servers import HOST, free_ports
from tests.server_kit import newer_server
from tests.tls_kit import Authority, Issued

EXPIRED = "a certificate that does not hold \\(certificate has expired\\)"
STRANGE = "a certificate that does not hold .*(self-signed certificate|unable to get local issuer certificate)"
OURS = "hangs up after the TLS handshake.*expected a client certificate that its authority has signed"


@dataclass(frozen=True)
class Site:
    """A server, and whatever its files and ours are replaced by."""

    server: EmbeddedRedis
    url: str
    trusted: Path
    ours: Authority
    strange: Authority

    def shows(self, issued: Issued) -> None:
        """The server's certificate from now on; whoever is connected connects anew."""
        order = f"CONFIG SET tls-cert-file {issued.cert} tls-key-file {issued.key}"
        assert asked(self.server.socket, order.encode()) == b"+OK\r\n"
        self.hangs_up()

    def hangs_up(self) -> None:
        asked(self.server.socket, b"CLIENT KILL TYPE normal")


@pytest.fixture
def site(short_directory: Path, tmp_path: Path) -> Iterator[Site]:
    ours, strange, (port,) = Authority(tmp_path, "ours"), Authority(tmp_path, "strange"), free_ports(1)
    server, client, trusted = ours.issue("server", HOST), ours.issue("client"), tmp_path / "trusted.pem"
    shutil.copy(ours.cert, trusted)
    options = {
        "tls-port": str(port),
        "bind": HOST,
        "tls-ca-cert-file": str(ours.cert),
        "tls-cert-file": str(server.cert),
        "tls-key-file": str(server.key),
    }
    variables = {"ESPER_REDIS_CA": trusted, "ESPER_REDIS_CERT": client.cert, "ESPER_REDIS_KEY": client.key}
    url = completed(f"rediss://{HOST}:{port}/0", {name: str(path) for name, path in variables.items()})
    with EmbeddedRedis(short_directory / tmp_path.name, binary=newer_server(), options=options) as started:
        yield Site(started, url, trusted, ours, strange)


def expire(site: Site) -> None:
    site.shows(site.ours.issue("server", HOST, expired=True))


def renew(site: Site) -> None:
    site.shows(site.ours.issue("server", HOST))


def change_authority(site: Site) -> None:
    site.shows(site.strange.issue("server", HOST))


def trust_it(site: Site) -> None:
    shutil.copy(site.strange.cert, site.trusted)


def expire_ours(site: Site) -> None:
    site.ours.issue("client", expired=True)
    site.hangs_up()


def renew_ours(site: Site) -> None:
    site.ours.issue("client")


@pytest.mark.parametrize(
    ("harm", "mend", "said"),
    [(expire, renew, EXPIRED), (change_authority, trust_it, STRANGE), (expire_ours, renew_ours, OURS)],
)
async def test_who_was_served_waits_for_a_renewed_certificate_and_who_was_not_is_refused(
    site: Site, harm: Callable[[Site], None], mend: Callable[[Site], None], said: str
) -> None:
    async with connect.writer(site.url) as served:
        assert await served.ask(("PING",)) == b"PONG"

        harm(site)
        with pytest.raises(UntrustedError, match=said):
            await until_told(served)
        async with connect.writer(site.url) as stranger:
            with pytest.raises(BusError, match=said) as refused:
                await stranger.ask(("PING",))
        mend(site)
        answer = await served.ask(("PING",))

    assert type(refused.value) is BusError
    assert answer == b"PONG"


async def until_told(redis: connect.Redis) -> None:
    """Ask until it is a certificate that is named: a server that hangs up may be met before its reason is."""
    for _ in range(1_000):
        try:
            await redis.ask(("PING",))
        except UntrustedError:
            raise
        except LostError:
            continue


def test_a_certificate_that_does_not_hold_is_told_of_once_in_an_outage() -> None:
    outage = Outage()

    with structlog.testing.capture_logs() as events:
        for _ in range(2):
            outage.begins("outbox", LostError("gone"))
            outage.begins("outbox", UntrustedError("expired"))
            outage.begins("inbox", UntrustedError("expired"))
            outage.ends("outbox")
            outage.ends("inbox")

    told = ["bus.lost", "bus.untrusted", "bus.regained"]
    assert [event["event"] for event in events] == told + told
