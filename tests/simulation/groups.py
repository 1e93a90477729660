"""Commands of the model about groups: who was given what, who takes it over, who is done with it."""

from __future__ import annotations

from itertools import islice
from typing import Any

from tests.simulation.model import Command, Model, RefusalError, Words, entry, flag, option
from tests.simulation.stream import BEGIN, END, Group, Id, Lease, Stream, first_of, last_of, pack, parse

SCAN = 10  # XAUTOCLAIM looks at so many entries for each that it may take over


def xgroup(model: Model, words: Words) -> Any:
    verb, key = words[0].upper(), words[1]
    stream = model.keys.find(key, Stream)
    if stream is None:
        if verb != b"CREATE" or not flag(words, b"MKSTREAM"):
            raise RefusalError("ERR The XGROUP subcommand requires the key to exist.")
        stream = model.keys.stream(key)
    if verb == b"CREATE":
        return _create(stream, words[2], words[3])
    if verb == b"DESTROY":
        return int(stream.groups.pop(words[2], None) is not None)
    group = stream.groups.get(words[2])
    if group is None:
        raise RefusalError(f"NOGROUP No such consumer group '{words[2].decode()}' for key name '{key.decode()}'")
    if verb == b"SETID":
        group.last = stream.last if words[3] == b"$" else parse(words[3])
        return b"OK"
    if verb == b"DELCONSUMER":
        return _delete_consumer(group, words[3])
    raise RefusalError("ERR unknown subcommand")


def _create(stream: Stream, name: bytes, start: bytes) -> bytes:
    if name in stream.groups:
        raise RefusalError("BUSYGROUP Consumer Group name already exists")
    stream.groups[name] = Group(stream.last if start == b"$" else parse(start))
    return b"OK"


def _delete_consumer(group: Group, consumer: bytes) -> int:
    gone = [at for at, _ in group.held(BEGIN, END, consumer)]
    for at in gone:
        group.drop(at)
    group.consumers.pop(consumer, None)
    return len(gone)


def xreadgroup(model: Model, words: Words) -> list[Any] | None:
    """Without waiting: who blocks is called again when something was added."""
    name, consumer, key, after = words[1], words[2], words[-2], words[-1]
    stream, group = model.keys.group(key, name, "XREADGROUP")
    count, now_ms = option(words[3:-3], b"COUNT", 1 << 30), model.keys.now_ms()
    if after != b">":
        group.consumers[consumer] = now_ms
        return [[key, _again(stream, group, consumer, parse(after), count, now_ms)]]
    new = stream.after(group.last, count)
    if not new:
        if consumer in group.consumers:
            group.consumers[consumer] = now_ms
        return None
    group.consumers[consumer] = now_ms
    for at in new:
        group.lend(at, consumer, now_ms)
    group.last = new[-1]
    return [[key, [entry(stream, at) for at in new]]]


def _again(stream: Stream, group: Group, consumer: bytes, after: Id, count: int, now_ms: int) -> list[Any]:
    found: list[Any] = []
    for at, lease in islice(group.held((after[0], after[1] + 1), END, consumer), count):
        there = entry(stream, at)
        if there is not None:  # a deleted one is told, and does not count as delivered
            lease.delivered_ms, lease.count = now_ms, lease.count + 1
        found.append(there or [pack(at), None])
    return found


def xack(model: Model, words: Words) -> int:
    stream = model.keys.find(words[0], Stream)
    if stream is None or words[1] not in stream.groups:
        return 0
    return sum(stream.groups[words[1]].drop(parse(word)) for word in words[2:])


def xpending(model: Model, words: Words) -> list[Any]:
    _, group = model.keys.group(words[0], words[1])
    rest = list(words[2:])
    if not rest:
        return _summary(group)
    min_idle_ms = 0
    if rest[0].upper() == b"IDLE":
        min_idle_ms, rest = int(rest[1]), rest[2:]
    now_ms, consumer = model.keys.now_ms(), rest[3] if len(rest) > 3 else None
    held = group.held(first_of(rest[0]), last_of(rest[1]), consumer)
    rows = (
        [pack(at), lease.consumer, max(0, now_ms - lease.delivered_ms), lease.count]
        for at, lease in held
        if not _younger(lease, min_idle_ms, now_ms)
    )
    return list(islice(rows, max(0, int(rest[2]))))


def _summary(group: Group) -> list[Any]:
    if not group.order:
        return [0, None, None, None]
    counts = [(name, group.num_pending(name)) for name in sorted(group.consumers)]
    owners = [[name, str(number).encode()] for name, number in counts if number]
    return [len(group.order), pack(group.order[0]), pack(group.order[-1]), owners]


def xclaim(model: Model, words: Words) -> list[Any]:
    key, name, consumer, min_idle = words[:4]
    stream, group = model.keys.group(key, name)
    ids = [word for word in words[4:] if word[:1].isdigit()]
    options = words[4 + next((i for i, word in enumerate(words[4:]) if not word[:1].isdigit()), len(ids)) :]
    ids = list(words[4 : len(words) - len(options)])
    now_ms = model.keys.now_ms()
    idle_ms, at_ms = option(options, b"IDLE", 0), option(options, b"TIME", now_ms)
    delivered_ms = min(now_ms, now_ms - idle_ms if idle_ms else at_ms)
    count = option(options, b"RETRYCOUNT", -1)
    found: list[Any] = []
    for at in map(parse, ids):
        lease = group.leases.get(at)
        if lease is None or _vanished(model, stream, group, at):
            continue
        if _younger(lease, int(min_idle), now_ms):
            continue
        _take_over(group, lease, consumer, now_ms)
        lease.delivered_ms = delivered_ms
        lease.count = count if count >= 0 else lease.count + (not flag(options, b"JUSTID"))
        found.append(pack(at) if flag(options, b"JUSTID") else entry(stream, at))
    return found


def xautoclaim(model: Model, words: Words) -> list[Any]:
    key, name, consumer, min_idle, start = words[:5]
    stream, group = model.keys.group(key, name)
    now_ms, just_id = model.keys.now_ms(), flag(words[5:], b"JUSTID")
    left = count = option(words[5:], b"COUNT", 100)
    found: list[Any] = []
    deleted: list[bytes] = []
    walk = [at for at, _ in group.held(first_of(start), END)]
    position = 0
    while position < min(len(walk), count * SCAN) and left:
        at = walk[position]
        position += 1
        if _vanished(model, stream, group, at):
            deleted.append(pack(at))
            left -= 1
            continue
        lease = group.leases[at]
        if _younger(lease, int(min_idle), now_ms):
            continue
        _take_over(group, lease, consumer, now_ms)
        lease.delivered_ms, lease.count = now_ms, lease.count + (not just_id)
        found.append(pack(at) if just_id else entry(stream, at))
        left -= 1
    cursor = pack(walk[position]) if position < len(walk) else b"0-0"
    return [cursor, found] if model.version < (7, 0) else [cursor, found, deleted]


def _younger(lease: Lease, min_idle_ms: int, now_ms: int) -> bool:
    """Not asked where no idle time is: after a step back of the clock an entry may be younger than nothing."""
    return min_idle_ms > 0 and now_ms - lease.delivered_ms < min_idle_ms


def _take_over(group: Group, lease: Lease, consumer: bytes, now_ms: int) -> None:
    lease.consumer = consumer
    group.consumers[consumer] = now_ms


def _vanished(model: Model, stream: Stream, group: Group, at: Id) -> bool:
    """Since 7.0 who claims a deleted entry takes it off the list."""
    return model.version >= (7, 0) and at not in stream.entries and group.drop(at)


COMMANDS: dict[bytes, Command] = {
    b"XGROUP": xgroup,
    b"XREADGROUP": xreadgroup,
    b"XACK": xack,
    b"XPENDING": xpending,
    b"XCLAIM": xclaim,
    b"XAUTOCLAIM": xautoclaim,
}
