"""Commands of the model that know no groups: entries, hashes, strings, keys."""

from __future__ import annotations

from typing import Any

from tests.simulation.model import Command, Model, RefusalError, Words, entries, entry, explicit, flag, option
from tests.simulation.stream import BEGIN, Stream, pack, parse


def xadd(model: Model, words: Words) -> bytes:
    key, at, *fields = words
    if at == b"*":
        return model.keys.add(key, fields)
    new = model.keys.find(key, Stream) is None
    stream = model.keys.stream(key)
    try:
        stream.add(explicit(stream, at), tuple(fields))
    except RefusalError:
        if new:
            del model.keys.values[key]
        raise
    return pack(stream.last)


def xlen(model: Model, words: Words) -> int:
    stream = model.keys.find(words[0], Stream)
    return 0 if stream is None else len(stream.entries)


def xrange(model: Model, words: Words) -> list[Any]:
    stream = model.keys.find(words[0], Stream)
    return [] if stream is None else entries(stream, words[1:])


def xrevrange(model: Model, words: Words) -> list[Any]:
    stream = model.keys.find(words[0], Stream)
    return [] if stream is None else entries(stream, words[1:], backwards=True)


def xread(model: Model, words: Words) -> list[Any] | None:
    count, key, after = option(words, b"COUNT", 1 << 30), words[-2], words[-1]
    stream = model.keys.find(key, Stream)
    if stream is None or after == b"$":
        return None
    found = [entry(stream, at) for at in stream.after(parse(after), count)]
    return [[key, found]] if found else None


def xdel(model: Model, words: Words) -> int:
    stream = model.keys.find(words[0], Stream)
    return 0 if stream is None else stream.delete(parse(word) for word in words[1:])


def xtrim(model: Model, words: Words) -> int:
    """With `~` as without: a server may trim all that it is asked to."""
    stream = model.keys.find(words[0], Stream)
    if stream is None:
        return 0
    if flag(words[1:2], b"MINID"):
        floor = parse(words[-1])
        return stream.delete([at for at in stream.order if at < floor])
    return stream.delete(stream.order[: max(0, len(stream.order) - int(words[-1]))])


def hset(model: Model, words: Words) -> int:
    found = model.keys.find(words[0], dict)
    fields = dict(zip(words[1::2], words[2::2], strict=True))
    if found is None:
        found = model.keys.values[words[0]] = {}
    new = sum(name not in found for name in fields)
    found.update(fields)
    return new


def hget(model: Model, words: Words) -> bytes | None:
    return (model.keys.find(words[0], dict) or {}).get(words[1])


def hgetall(model: Model, words: Words) -> list[bytes]:
    found = model.keys.find(words[0], dict) or {}
    return [part for pair in found.items() for part in pair]


def hdel(model: Model, words: Words) -> int:
    found = model.keys.find(words[0], dict) or {}
    gone = sum(found.pop(name, None) is not None for name in words[1:])
    if not found:
        model.keys.values.pop(words[0], None)
    return gone


def set_(model: Model, words: Words) -> bytes:
    seconds = option(words[2:], b"EX", 0)
    model.keys.values[words[0]] = (words[1], model.keys.now_ms() + 1000 * seconds if seconds else None)
    return b"OK"


def get(model: Model, words: Words) -> bytes | None:
    found = model.keys.find(words[0], tuple)
    return None if found is None else found[0]


def getrange(model: Model, words: Words) -> bytes:
    return (get(model, words) or b"")[int(words[1]) : int(words[2]) + 1]


def setrange(model: Model, words: Words) -> int:
    found = model.keys.find(words[0], tuple) or (b"", None)
    start, new = int(words[1]), words[2]
    padded = found[0].ljust(start, b"\0")
    value = padded[:start] + new + padded[start + len(new) :]
    model.keys.values[words[0]] = (value, found[1])
    return len(value)


def expire(model: Model, words: Words) -> int:
    """Strings only: nothing else ends here."""
    found = model.keys.find(words[0], tuple)
    if found is None:
        return 0
    model.keys.values[words[0]] = (found[0], model.keys.now_ms() + 1000 * int(words[1]))
    return 1


def delete(model: Model, words: Words) -> int:
    return sum(model.keys.type_of(key) != b"none" and model.keys.values.pop(key, None) is not None for key in words)


def exists(model: Model, words: Words) -> int:
    return sum(model.keys.type_of(key) != b"none" for key in words)


def flushall(model: Model, words: Words) -> bytes:
    model.keys.values.clear()
    return b"OK"


def time(model: Model, words: Words) -> list[bytes]:
    now_ms = model.keys.now_ms()
    return [str(now_ms // 1000).encode(), str(now_ms % 1000 * 1000).encode()]


def type_(model: Model, words: Words) -> bytes:
    return model.keys.type_of(words[0])


def ping(model: Model, words: Words) -> bytes:
    return b"PONG"


def xinfo(model: Model, words: Words) -> list[Any]:
    """Of XINFO what tells of groups and consumers the same in every version."""
    stream = model.keys.find(words[1], Stream)
    if stream is None:
        raise RefusalError("ERR no such key")
    if words[0].upper() == b"STREAM":
        return [b"length", len(stream.entries), b"last-generated-id", pack(stream.last), b"groups", len(stream.groups)]
    if words[0].upper() == b"GROUPS":
        return [_group_facts(name, stream) for name in sorted(stream.groups)]
    group = stream.groups.get(words[2])
    if group is None:
        raise RefusalError(f"NOGROUP No such consumer group '{words[2].decode()}' for key name '{words[1].decode()}'")
    now_ms = model.keys.now_ms()
    return [
        [b"name", name, b"pending", group.num_pending(name), b"idle", max(0, now_ms - seen)]
        for name, seen in sorted(group.consumers.items())
    ]


def _group_facts(name: bytes, stream: Stream) -> list[Any]:
    group = stream.groups[name]
    facts = [b"name", name, b"consumers", len(group.consumers), b"pending", len(group.leases)]
    return [*facts, b"last-delivered-id", pack(group.last if group.last > BEGIN else BEGIN)]


COMMANDS: dict[bytes, Command] = {
    b"XADD": xadd,
    b"XLEN": xlen,
    b"XRANGE": xrange,
    b"XREVRANGE": xrevrange,
    b"XREAD": xread,
    b"XDEL": xdel,
    b"XTRIM": xtrim,
    b"XINFO": xinfo,
    b"HSET": hset,
    b"HGET": hget,
    b"HGETALL": hgetall,
    b"HDEL": hdel,
    b"SET": set_,
    b"GET": get,
    b"GETRANGE": getrange,
    b"SETRANGE": setrange,
    b"EXPIRE": expire,
    b"DEL": delete,
    b"EXISTS": exists,
    b"FLUSHALL": flushall,
    b"TIME": time,
    b"TYPE": type_,
    b"PING": ping,
}
