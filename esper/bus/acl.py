"""What each role may do on a Redis of 7.0 or newer: users of an ACL file, made from the table of streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Literal

from esper.bus.client.version import numbers
from esper.bus.names import LOGGED, POSITIONED, RUNS_KEY, SETTLED, STREAMS, Stream, key, region_key

Way = Literal["read", "write", "both"]

FIRST = (7, 0)
"""With selectors, and with patterns for reads and for writes alone."""
USERS = {
    "worker": ("worker",),
    "coordinator": ("coordinator",),
    "regional": ("regional",),
    "global": ("global",),
    "controller": ("controller", "optimizer"),
    "observer": ("observer",),
    "exporter": (),
    "operator": ("controller", "optimizer", "observer"),
}
"""User: the roles that it has in the table of streams."""
REFUSERS = ("worker", "coordinator", "regional", "global")
"""Who sets aside what it cannot handle."""
ADMIN = "esper-admin"
"""Who may do everything, as Redis's default user may before there is an ACL file."""
NOBODY = "user default off resetpass ~* &* +@all"
"""Nobody is let in without a name. It keeps its rights, as Redis reads its own append-only file by them: 7.0.15 leaves
out, without a word, every transaction that the default user may not carry out, and what a script wrote is one."""
SURVEYORS = ("coordinator", "observer", "operator")
"""Who looks for the regions of a run, by SCAN: it tells the names of all keys of the server, and nothing else."""
BASE = ("resetchannels", "-@all", "+@connection", "-@dangerous", "+time", "+info")
"""Of everybody, and none of it names a key. AUTH, HELLO and WAIT are among @connection."""
SIGNS: dict[Way, str] = {"read": "%R~", "write": "%W~", "both": "~"}
STANDING = ("type", "exists", "xlen", "xpending", "xinfo|stream", "xinfo|groups", "xinfo|consumers")
"""How a stream stands: of what it holds, the ids of what is pending."""
LOOKING = (*STANDING, "xread", "xrange", "xrevrange")
JOINING = ("xack", "xclaim", "xgroup|create", "xgroup|delconsumer")
RECALLING = ("type", "hget", "hmget", "hgetall")
RECORDING = ("hset", "hsetnx", "hdel")


@dataclass(frozen=True, slots=True)
class Enforceable:
    """Whether a server can keep roles apart; `reason`: why not, empty where it can."""

    reason: str

    def __bool__(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class Grant:
    """Commands on keys that match any of these patterns, which they may read, write, or both."""

    way: Way
    commands: Sequence[str]
    patterns: Sequence[str]

    def __str__(self) -> str:
        """As a selector."""
        words = [f"{SIGNS[self.way]}{pattern}" for pattern in self.patterns]
        return f"({' '.join(words + [f'+{command}' for command in self.commands])})"


def enforceable(version: str) -> Enforceable:
    """Of a server of this version, such as 7.0.15, as INFO tells it."""
    if numbers(version) >= FIRST:
        return Enforceable("")
    return Enforceable(f"Redis {version} knows no selectors in ACLs; expected {'.'.join(map(str, FIRST))} or newer")


def user_name(run_id: str, user: str) -> str:
    """Of one run: a server may hold several."""
    return f"{run_id}-{user}"


def hashed(password: str) -> str:
    """As an ACL file has it: its SHA-256."""
    return f"#{sha256(password.encode()).hexdigest()}"


def line(run_id: str, user: str, hashes: Sequence[str], *, tells_settings: bool = False) -> str:
    """The user's line in an ACL file, with each of these passwords good.

    `tells_settings`: also CONFIG GET, by which durable mode asks; it tells every setting, passwords among them.
    """
    extras = ["+config|get"] * tells_settings + ["+scan"] * (user in SURVEYORS)
    rights = [*BASE, *extras, *map(str, grants(run_id, user))]
    return " ".join(("user", user_name(run_id, user), "on", *hashes, *rights))


def admin(hashes: Sequence[str]) -> str:
    """The line of whoever looks after the server."""
    return " ".join(("user", ADMIN, "on", *hashes, "~*", "&*", "+@all"))


def grants(run_id: str, user: str) -> list[Grant]:
    """All that a user may do with keys."""
    found = [*streams_of(run_id, user), *records_of(run_id, user), Grant("read", RECALLING, [RUNS_KEY])]
    if user != "controller":
        # Each command that a script gives is judged by itself: this alone reads and writes nothing.
        found.append(Grant("both", ["eval", "evalsha"], [key(run_id, "*"), region_key(run_id, "*", "*")]))
    return [grant for grant in found if grant.patterns]


def streams_of(run_id: str, user: str) -> list[Grant]:
    """What the table of streams comes to for a user."""
    where = partial(keys_where, run_id, user)
    joined = where(joins)
    return [
        Grant("write", ["type", "xadd"], where(adds)),
        Grant("read", [*LOOKING, "xreadgroup"], joined),
        Grant("write", JOINING, joined),
        Grant("both", ["xautoclaim"], joined if user in ("regional", "global") else []),
        Grant("read", LOOKING, [each for each in where(looks) if each not in joined]),
        Grant("read", STANDING, where(stands)),
        Grant("write", ["xtrim"], where(trims)),
        Grant("write", ["xdel"], where(deletes)),
        Grant("write", ["xgroup|destroy"], where(dissolves)),
        Grant("write", ["xgroup|create"], where(founds)),
    ]


def keys_where(run_id: str, user: str, does: Callable[[Stream, str], bool]) -> list[str]:
    """Of the streams to which the user does that; one of a region stands for those of all."""
    rows = [row for row in STREAMS if does(row, user)]
    return [region_key(run_id, "*", row.name) if row.regional else key(run_id, row.name) for row in rows]


def adds(row: Stream, user: str) -> bool:
    """Whether it puts entries on the stream."""
    if row.name == "dead":
        return user in REFUSERS
    return any(role in row.writers.split(", ") for role in USERS[user])


def joins(row: Stream, user: str) -> bool:
    """Whether it reads by a group of the stream."""
    groups = row.group.split("; ")
    return user in groups or (user == "worker" and user in row.readers.split(", "))


def looks(row: Stream, user: str) -> bool:
    """Whether it reads the stream by no group, and moves none."""
    match user:
        case "observer" | "operator":
            return True
        case "controller":
            return row.name not in ("commands", "optimizer", "votes", "dead")
        case "coordinator":
            return row.trimming == LOGGED  # it archives them
        case "exporter":
            return row.name == "global"
    return user == "worker" and row.name == "heartbeats"  # whether another worker bears its name


def stands(row: Stream, user: str) -> bool:
    """Whether it asks how the stream stands: its figures show all, a producer sheds by the backlog.

    An aggregator knows by what it has written whether its record was lost. A settlement asks whether ids are left.
    """
    return user == "coordinator" or (user in REFUSERS and adds(row, user))


def trims(row: Stream, user: str) -> bool:
    """Whether it frees what is settled or too old."""
    if row.trimming == SETTLED:
        return joins(row, user)
    return user == ("global" if row.name == "global" else "coordinator")


def deletes(row: Stream, user: str) -> bool:
    """Whether it deletes entries: what no key of the run has sealed, or dead letters once they are seen to."""
    return user == "operator" if row.name == "dead" else user == "coordinator" and joins(row, user)


def dissolves(row: Stream, user: str) -> bool:
    """Whether it destroys groups that nobody reads by any more."""
    return user in ("coordinator", "operator") and row.name in (*POSITIONED, "emergency")


def founds(row: Stream, user: str) -> bool:
    """Whether it makes groups before their readers are there."""
    return user == "operator" and not row.group.startswith("none")


def records_of(run_id: str, user: str) -> list[Grant]:
    """Hashes and strings beside the streams."""

    def in_run(*names: str) -> list[str]:
        return [key(run_id, name) for name in names]

    reads = {
        "coordinator": in_run("windows:coordinator", "kept", "counters"),
        "worker": in_run("windows:worker/*", "began", "stated", "counters"),
        "regional": [region_key(run_id, "*", "windows"), *in_run("totals", "counters")],
        "global": in_run("totals", "counters"),
        "exporter": in_run("totals", "exported:*"),
        "observer": in_run("totals", "counters", "kept", "stated"),
        "operator": in_run("totals", "counters", "kept", "stated"),
    }
    writes = {
        "coordinator": in_run("windows:coordinator", "counters"),
        "worker": in_run("windows:worker/*", "began", "stated", "kept", "counters"),
        "regional": [region_key(run_id, "*", "windows"), *in_run("counters")],
        "global": reads["global"],
        "exporter": in_run("exported:*"),
        "operator": [RUNS_KEY],
    }
    turns = {"regional": [region_key(run_id, "*", "windows:turn")], "global": in_run("totals:turn")}
    settled = [*in_run("settled:*"), region_key(run_id, "*", "settled:*")]
    return [
        Grant("read", RECALLING, reads.get(user, [])),
        Grant("write", ["type", *RECORDING], writes.get(user, [])),
        Grant("both", ["get", "set"], settled if user in REFUSERS else []),
        Grant("both", ["get", "set", "del"], turns.get(user, [])),
    ]
