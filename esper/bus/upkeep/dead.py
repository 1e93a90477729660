"""Dead letters of a run: read as they lie, deleted, and put back on their stream at most once."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from esper.bus.connect import Redis
from esper.bus.group.delivery import FIELD, Entry
from esper.bus.names import RUN_KEY, key
from esper.errors import RefusedError
from esper.leyline.entries import entry_ms
from esper.leyline.envelope import unpack

ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")
PAGE = 256
# Whoever comes second finds the letter gone and writes nothing. Nothing may fail between the first write and the last.
PUT_BACK = """
if #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return false end
local found = redis.call('TYPE', KEYS[2]).ok
if found ~= 'none' and found ~= 'stream' then return redis.error_reply(KEYS[2] .. ' holds a ' .. found) end
local id = redis.call('XADD', KEYS[2], '*', ARGV[2], ARGV[3])
redis.call('XDEL', KEYS[1], ARGV[1])
return id
"""


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. Whoever can write to the stream can have written it: nothing in it is to be believed."""

    entry_id: str
    fields: Mapping[bytes, bytes]

    def text(self, name: str) -> str:
        """A field as text; empty where it is missing."""
        return self.fields.get(name.encode(), b"").decode(errors="replace")

    @property
    def kept(self) -> bytes | None:
        """The whole message; None: it was junk, of which only hash and head are told."""
        return self.fields.get(FIELD)

    @property
    def head(self) -> bytes:
        """What is there of the message's bytes, from the first one on."""
        kept = self.kept
        return self.fields.get(b"head", b"") if kept is None else kept

    @property
    def made_ms(self) -> int:
        """When it was set aside, by the server."""
        return entry_ms(self.entry_id)

    @property
    def origin_id(self) -> str:
        """Id of the entry that it was; its own where that tells none."""
        told = self.text("entry_id")
        return told if ENTRY_ID.fullmatch(told) else self.entry_id

    @property
    def origin(self) -> str:
        """The stream that it comes from, as a person says it: its name, behind its region where it has one."""
        found = RUN_KEY.fullmatch(self.text("stream"))
        return "/".join(filter(None, (found["region"], found["name"]))) if found else self.text("stream")

    @property
    def source(self) -> str:
        """Role and producer that the envelope names; empty where it says nothing that can be read."""
        try:
            header = unpack(self.head).header
        except RefusedError:
            return ""
        return f"{header.role.value}/{header.producer}"

    @property
    def producer(self) -> str:
        """Who the envelope says has sealed it; empty as above."""
        return self.source.partition("/")[2]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which letters are meant: of one reason, made behind an entry id, the first so many. Empty and 0: all.

    `until` is the last id that is meant; `stream` and `producer` are globs of what is shown of a letter.
    """

    reason: str = ""
    since: str = "0"
    count: int = 0
    until: str = "+"
    stream: str = ""
    producer: str = ""

    def means(self, letter: Letter) -> bool:
        """Whether what the letter says is what is asked for."""
        return (
            self.reason in ("", letter.text("reason"))
            and fnmatchcase(letter.origin, self.stream or "*")
            and fnmatchcase(letter.producer, self.producer or "*")
        )


async def letters(redis: Redis, run_id: str, choice: Choice) -> AsyncIterator[Letter]:
    """The letters chosen, oldest first."""
    num = 0
    async for entry_id, fields in entries(redis, key(run_id, "dead"), choice.since, choice.until):
        letter = Letter(entry_id.decode(), fields)
        if choice.means(letter):
            yield letter
            num += 1
            if num == choice.count:
                return


async def letter_of(redis: Redis, run_id: str, entry_id: str) -> Letter | None:
    """One letter; None: there is none of this id."""
    found: Any = await redis.execute_command("XRANGE", key(run_id, "dead"), entry_id, entry_id)
    return Letter(found[0][0].decode(), found[0][1]) if found else None


async def newest(redis: Redis, run_id: str, count: int) -> list[str]:
    """Ids of the last so many, newest first."""
    found: Any = await redis.execute_command("XREVRANGE", key(run_id, "dead"), "+", "-", "COUNT", count)
    return [entry_id.decode() for entry_id, _ in found]


async def delete(redis: Redis, run_id: str, entry_ids: Sequence[str]) -> int:
    """Delete letters; how many were still there."""
    num = 0
    for start in range(0, len(entry_ids), PAGE):
        num += int(await redis.execute_command("XDEL", key(run_id, "dead"), *entry_ids[start : start + PAGE]))
    return num


async def put_back(redis: Redis, run_id: str, entry_id: str, stream: str, sealed: bytes) -> str | None:
    """Add a message to a stream of the run and delete its letter, in one step: the id of the new entry.

    None: the letter was gone. After LostError it may be asked for again: it is carried out once.
    """
    keys = (key(run_id, "dead"), stream)
    added: bytes | None = await redis.execute_command("EVAL", PUT_BACK, len(keys), *keys, entry_id, FIELD, sealed)
    return None if added is None else added.decode()


async def entries(redis: Redis, stream: str, since: str = "0", until: str = "+") -> AsyncIterator[Entry]:
    """Every entry of a stream after an id, up to another, or to the end that it has when that is reached."""
    position = since
    while page := await redis.execute_command("XRANGE", stream, f"({position}", until, "COUNT", PAGE):
        for entry in page:
            yield entry
        position = page[-1][0].decode()
