"""The model of Redis answers as Redis does, command for command."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, TypeVar

import pytest

from esper.bus.embedded import EmbeddedRedis, find_server
from esper.bus.group.script import RELEASE, SETTLE, arguments
from esper.bus.group.settlement import Settlement
from tests.simulation.model import RefusalError, Word
from tests.simulation.server import server

IDLE_MS = 1_000_000  # far more than an example takes: what is idle for longer was made so
NUM_SEEDS, NUM_STEPS = 80, 40

SERVERS = {"embedded": find_server()}
if on_path := shutil.which("redis-server"):
    SERVERS["on PATH"] = Path(on_path)

Draw: TypeAlias = Callable[[Random], Any]
Rule = TypeVar("Rule", bound=Callable[..., None])
RULES: list[tuple[Callable[..., None], dict[str, Draw]]] = []


def rule(**draws: Draw) -> Callable[[Rule], Rule]:
    """One thing that may be done to both, with arguments that are drawn each time.

    Not hypothesis's: its draws took three times what both answers take, and here nothing is shrunk.
    """

    def noted(method: Rule) -> Rule:
        RULES.append((method, draws))
        return method

    return noted


def one_of(*choices: Any) -> Draw:
    return lambda random: random.choice(choices)


def between(least: int, most: int) -> Draw:
    return lambda random: random.randint(least, most)


def several(each: Draw, least: int, most: int) -> Draw:
    return lambda random: [each(random) for _ in range(random.randint(least, most))]


keys = one_of("s0", "s0", "s0", "s1")
groups = one_of("g0", "g0", "g0", "g1")
consumers = one_of("c0", "c0", "c0", "c1", "c2")
either = one_of(False, True)
places = between(0, 30)
counts = between(1, 4)
values = one_of(b"", b"a", b"b")


class Line:
    """A connection that reads replies as they come; a refusal is an error."""

    def __init__(self, url: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(url.removeprefix("unix://"))
        self.file = self.socket.makefile("rb")

    def call(self, *words: Word) -> Any:
        self.send(words)
        return self.reply()

    def send(self, *commands: tuple[Word, ...]) -> None:
        """In one go; as many replies will come."""
        self.socket.sendall(b"".join(map(packed, commands)))

    def reply(self) -> Any:
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RefusalError(rest.decode())
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        length = int(rest)
        if length < 0:
            return None
        if kind == b"$":
            return self.file.read(length + 2)[:-2]
        return [self.reply() for _ in range(length)]

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def packed(words: tuple[Word, ...]) -> bytes:
    """A command as it is sent."""
    each = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n%b" % (len(each), b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in each))


class Both:
    """Sends each command to the model and to a server. Ids that the server makes tell the model what time it was."""

    def __init__(self, line: Line, version: tuple[int, int]) -> None:
        self.line = line
        self.line.call("FLUSHALL")
        self.line.call("SCRIPT", "FLUSH")
        self.now_ms = 0
        self.entry_ms: Iterator[int] = iter(())
        self.model = server(lambda: self.now_ms, version, lambda: next(self.entry_ms))
        self.sent: list[tuple[Word, ...]] = []
        self.ids = ["0-0"]
        self.num_tokens = 0

    def same(self, *words: Word) -> Any:
        """Ask both; the answers are equal."""
        self.sent.append(words)
        self.line.send(words, ("TIME",))  # at once: half as many turns of two processes
        theirs = self.asked(self.line.reply)
        made = theirs if isinstance(theirs, list) else [theirs]
        seconds, microseconds = (int(part) for part in self.line.reply())
        self.now_ms = seconds * 1000 + microseconds // 1000
        self.entry_ms = iter(int(each.split(b"-")[0]) for each in made if isinstance(each, bytes) and b"-" in each)
        ours = self.asked(self.model.call, *words)
        assert rounded(ours) == rounded(theirs), f"{ours} is not {theirs}, after {self.sent}"
        return theirs

    def asked(self, call: Any, *words: Word) -> Any:
        try:
            return call(*words)
        except RefusalError as error:
            return str(error).split()[0]

    def at(self, place: int) -> str:
        return self.ids[place % len(self.ids)]

    @rule(key=keys, milliseconds=between(1, 9), explicit=either)
    def add(self, key: str, milliseconds: int, explicit: bool) -> None:
        newest = int(self.ids[-1].split("-")[0]) % 10**6
        wanted = f"{max(0, newest + milliseconds - 2)}-{milliseconds}" if explicit else "*"
        made = self.same("XADD", key, wanted, "m", f"body {milliseconds}")
        if isinstance(made, bytes):
            self.ids.append(made.decode())

    @rule(key=keys, group=groups, start=one_of("0", "0", "$"), make=either)
    def create(self, key: str, group: str, start: str, make: bool) -> None:
        self.same("XGROUP", "CREATE", key, group, start, *(["MKSTREAM"] if make else []))

    @rule(key=keys, group=groups, consumer=consumers, gone=several(between(1, 12), 0, 3))
    def crowd(self, key: str, group: str, consumer: str, gone: list[int]) -> None:
        """More pending entries than one XAUTOCLAIM looks at, some of them deleted."""
        self.same("XGROUP", "CREATE", key, group, "0", "MKSTREAM")
        for milliseconds in range(12):
            self.add(key, milliseconds, explicit=False)
        self.same("XREADGROUP", "GROUP", group, consumer, "COUNT", 20, "STREAMS", key, ">")
        for back in gone:
            self.same("XDEL", key, self.ids[-back])
        self.same("XAUTOCLAIM", key, group, consumer, IDLE_MS, self.ids[-12], "COUNT", 1, "JUSTID")

    @rule(key=keys, group=groups, consumer=consumers, count=counts)
    def read(self, key: str, group: str, consumer: str, count: int) -> None:
        self.same("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, ">")

    @rule(key=keys, group=groups, consumer=consumers, count=counts, place=places)
    def read_again(self, key: str, group: str, consumer: str, count: int, place: int) -> None:
        self.same("XREADGROUP", "GROUP", group, consumer, "COUNT", count, "STREAMS", key, self.at(place * (count % 2)))

    @rule(key=keys, group=groups, some=several(places, 1, 3))
    def ack(self, key: str, group: str, some: list[int]) -> None:
        self.same("XACK", key, group, *map(self.at, some))

    @rule(key=keys, group=groups, consumer=consumers, some=several(places, 1, 3), idle=either)
    def claim(self, key: str, group: str, consumer: str, some: list[int], idle: bool) -> None:
        least = IDLE_MS if idle else 0
        choice: list[list[Word]] = [["JUSTID"], ["IDLE", 2 * IDLE_MS, "JUSTID"], ["RETRYCOUNT", 7], []]
        self.same("XCLAIM", key, group, consumer, least, *dict.fromkeys(map(self.at, some)), *choice[sum(some) % 4])

    @rule(key=keys, group=groups, consumer=consumers, count=counts, place=places, idle=either, just=either)
    def autoclaim(self, key: str, group: str, consumer: str, count: int, place: int, idle: bool, just: bool) -> None:
        words: list[Word] = ["XAUTOCLAIM", key, group, consumer, IDLE_MS if idle else 0, self.at(place), "COUNT", count]
        self.same(*words, *(["JUSTID"] if just else []))

    @rule(key=keys, group=groups, consumer=consumers, place=places, count=counts)
    def look(self, key: str, group: str, consumer: str, place: int, count: int) -> None:
        self.same("XPENDING", key, group)
        self.same("XPENDING", key, group, f"({self.at(place)}", "+", count, consumer)
        self.same("XPENDING", key, group, "IDLE", IDLE_MS, "-", "+", count)
        self.same("XINFO", "CONSUMERS", key, group)

    @rule(key=keys, place=places, count=counts)
    def whole(self, key: str, place: int, count: int) -> None:
        self.same("XRANGE", key, f"({self.at(place)}", "+", "COUNT", count)
        self.same("XREVRANGE", key, "+", "-", "COUNT", count)
        self.same("XLEN", key)
        self.same("TYPE", key)

    @rule(key=keys, place=places, one=either)
    def take_away(self, key: str, place: int, one: bool) -> None:
        self.same(*(["XDEL", key, self.at(place)] if one else ["XTRIM", key, "MINID", "=", self.at(place)]))

    @rule(key=keys, group=groups, consumer=consumers, what=between(0, 9))
    def destroy(self, key: str, group: str, consumer: str, what: int) -> None:
        match what:
            case 0:
                self.same("DEL", key)
            case 1 | 2:
                self.same("XGROUP", "DESTROY", key, group)
            case 3 | 4 | 5:
                self.same("XGROUP", "DELCONSUMER", key, group, consumer)

    @rule(names=one_of("f", "g", "fg"), value=values, gone=either)
    def remember(self, names: str, value: bytes, gone: bool) -> None:
        self.same("HSET", "h0", *(part for name in names for part in (name, value)))
        self.same(*(["HDEL", "h0", "f"] if gone else ["HGET", "h0", "f"]))
        self.same("HGETALL", "h0")

    @rule(
        lease=lambda random: (keys(random), groups(random), consumers(random)),
        some=several(places, 0, 4),
        dropped=several(places, 0, 1),
        effects=several(between(1, 40), 0, 3),
        expected=one_of(None, None, b"a"),
        again=either,
    )
    def settle(
        self,
        lease: tuple[str, str, str],
        some: list[int],
        dropped: list[int],
        effects: list[int],
        expected: bytes | None,
        again: bool,
    ) -> None:
        settlement = Settlement()
        for entry_id in sorted(map(self.at, some)):
            settlement.acks.setdefault(lease, {})[entry_id] = None
        for entry_id in sorted(map(self.at, dropped)):
            settlement.acks.setdefault(lease, {})[entry_id] = None
            settlement.drops.setdefault(lease[0], {})[entry_id] = None
        settlement.write("out", b"effect")
        settlement.expect("h0", "f", expected)
        settlement.put("h0", {"f": b"a" if expected is None else b"", "g": b"b"})
        for number in effects:
            settlement.once("done", number)
        self.num_tokens += not again
        words = arguments(settlement, "memory", f"{self.num_tokens}:")
        self.script(SETTLE.sha, SETTLE.source, *words)

    @rule(key=keys, group=groups, consumer=consumers, some=several(places, 0, 2))
    def release(self, key: str, group: str, consumer: str, some: list[int]) -> None:
        self.script(RELEASE.sha, RELEASE.source, [key], [group, consumer, 3, *map(self.at, some)])

    def script(self, sha: str, source: bytes, names: list[str], argv: list[Any]) -> None:
        if self.same("EVALSHA", sha, len(names), *names, *argv) == "NOSCRIPT":
            self.same("EVAL", source, len(names), *names, *argv)

    def done(self) -> None:
        """All that is stored is the same."""
        for key in ("s0", "s1", "out"):
            self.same("XRANGE", key, "-", "+")
            self.same("XINFO", "GROUPS", key)
            for group in ("g0", "g1"):
                self.same("XPENDING", key, group, "-", "+", 100)
        self.same("GET", "memory")


def rounded(reply: Any) -> Any:
    """Of idle times only whether they were made long; what has no order is put in one."""
    if not isinstance(reply, list):
        return reply
    if len(reply) == 4 and isinstance(reply[2], int):  # a row of XPENDING
        return [*reply[:2], reply[2] // IDLE_MS, reply[3]]
    if reply and reply[0] == b"name":  # a row of XINFO
        facts = dict(zip(reply[::2], reply[1::2], strict=True))
        return [facts[b"name"], facts[b"pending"], facts.get(b"last-delivered-id")]
    rows = [rounded(each) for each in reply]
    return sorted(rows) if reply and isinstance(reply[0], list) and reply[0][:1] == [b"name"] else rows


@pytest.fixture(scope="module", params=SERVERS)
def line(request: pytest.FixtureRequest, short_directory: Path) -> Iterator[Line]:
    """To a server of this test's own: it is emptied again and again."""
    with EmbeddedRedis(short_directory / f"model{len(request.param)}", binary=SERVERS[request.param]) as started:
        line = Line(started.url)
        yield line
        line.close()


def test_the_model_answers_as_the_server_does(line: Line) -> None:
    told = line.call("INFO", "server").decode()
    version = next(row for row in told.splitlines() if row.startswith("redis_version")).split(":")[1].split(".")

    for seed in range(NUM_SEEDS):
        random, both = Random(seed), Both(line, (int(version[0]), int(version[1])))
        share = random.uniform(0.3, 1)  # of the rules: what only a few of them come to, all would hide
        some = [each for each in RULES if random.random() < share] or RULES
        for _ in range(NUM_STEPS):
            method, draws = random.choice(some)
            method(both, **{name: draw(random) for name, draw in draws.items()})
        both.done()
