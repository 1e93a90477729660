"""What may stand in the URL of a Redis: said before anything connects, and without a word of its password."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlsplit

from esper.errors import near

FORM = re.compile(
    r"(?P<scheme>rediss?|unix)(?:\+(?P<kind>cluster|sentinel))?://"
    r"(?:(?P<user>[^/?#]*)@)?(?P<place>[^?]*)(?:\?(?P<query>.*))?"
)
ONE = re.compile(r"(?:\[[^]]*\]|[^]\[:/@]*)(?::(?P<port>[^/]*))?(?:/(?P<database>.*))?")
MANY = re.compile(r"(?P<hosts>[^/@#]+)(?:/(?P<path>.*))?")
FORMS = (
    "a URL that begins with redis://, rediss:// or unix://, or redis+cluster://HOST:PORT,HOST:PORT or "
    "redis+sentinel://HOST:PORT,HOST:PORT/NAME, rediss+ for TLS"
)
SIGNS = "a password whose signs /, ? and # are written %2F, %3F and %23, or stands in ESPER_REDIS_PASSWORD"
UNREAD = "%23 for each # in it, behind which a URL says nothing"
ONE_DATABASE = "no database: a Cluster has one"
OPTIONS = (
    *("db", "protocol", "client_name", "username", "password", "password_file"),
    *("socket_timeout", "socket_connect_timeout", "socket_read_size", "health_check_interval"),
)
OVER_TCP = ("socket_keepalive",)
OF_SENTINELS = ("sentinel_username", "sentinel_password")
OF_TLS = (
    *("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs", "ssl_check_hostname"),
    *("ssl_min_version", "ssl_ciphers", "ssl_ca_path", "ssl_ca_data"),
    *("ssl_include_verify_flags", "ssl_exclude_verify_flags"),
)
"""What a URL may ask behind its ?. Not how many connections there may be, as whoever needs one more than that would
fail, nor that the library repeats a command, or reads replies as text."""

Node = tuple[str, int]


def unfit(url: str) -> str:
    """What was expected instead of this URL, without a word of its password; empty: it fits."""
    found = FORM.fullmatch(url)
    if found is None or (found["scheme"] == "unix" and found["kind"]):
        return FORMS
    place, query = found["place"], found["query"] or ""
    asked = parse_qsl(query, keep_blank_values=True)
    unknown = [name for name, _ in asked if name not in known(found)]
    wrong = misplaced(found["scheme"], found["kind"] or "", place)
    if found["kind"] == "cluster" and any(name == "db" and value not in ("", "0") for name, value in asked):
        wrong = wrong or ONE_DATABASE
    if "#" in place + query:
        wrong = wrong or UNREAD
    if ("@" in place and found["scheme"] != "unix") or ((wrong or unknown) and "@" in query):
        return SIGNS
    if wrong or not unknown:
        return wrong
    return f"no {unknown[0]!r} behind its ?, where it may say {', '.join(known(found))}{near(unknown[0], known(found))}"


def known(found: re.Match[str]) -> tuple[str, ...]:
    """Options of such a URL."""
    kinds = {
        OVER_TCP: found["scheme"] != "unix",
        OF_TLS: found["scheme"] == "rediss",
        OF_SENTINELS: found["kind"] == "sentinel",
    }
    return OPTIONS + tuple(name for names, are in kinds.items() if are for name in names)


def misplaced(scheme: str, kind: str, place: str) -> str:
    """What was expected of host, port and database, or of the hosts; empty: they fit."""
    if scheme == "unix":
        return "" if place.startswith("/") else "the path of a socket: unix:///PATH"
    if kind:
        return misplaced_many(kind, place)
    found = ONE.fullmatch(place)
    if found is None or not is_port(found["port"]):
        return "HOST:PORT behind its user, the port from 1 to 65535"
    return "" if is_number((found["database"] or "").rstrip("/")) else "the number of a database behind its port: /0"


def misplaced_many(kind: str, place: str) -> str:
    """The same, where there are several hosts."""
    if MANY.fullmatch(place) is None:
        return FORMS
    hosts, path = behind(place)
    service, _, database = path.partition("/") if kind == "sentinel" else ("", "", path)
    if kind == "sentinel" and not service:
        return "the primary's name behind the Sentinels: /NAME"
    if kind == "cluster" and database not in ("", "0"):
        return ONE_DATABASE
    if not is_number(database):
        return "the number of a database behind the primary's name: /NAME/0"
    wrong = [part for part in hosts if not is_node(part)]
    return f"HOST:PORT where it says {wrong[0]!r}" if wrong else ""


def behind(place: str) -> tuple[list[str], str]:
    """Hosts, and the path behind them."""
    hosts, _, path = place.partition("/")
    return hosts.split(","), path


def is_port(text: str | None) -> bool:
    """Or left out, as below."""
    return not text or (is_number(text) and 0 < int(text) < 1 << 16)


def is_number(text: str | None) -> bool:
    """Without a sign."""
    return not text or (text.isascii() and text.isdigit())


def is_node(text: str) -> bool:
    """Whether it is a host, with or without a port."""
    try:
        node(text, 0)
    except ValueError:
        return False
    return True


def node(text: str, port: int) -> Node:
    """HOST, HOST:PORT or [HOST]:PORT. ValueError: none of these."""
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError(text)
    return parts.hostname, parts.port or port
