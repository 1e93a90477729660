"""The hash beside an aggregator's stream, remembered: where it alone is lost, it is known what it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import structlog

from esper.bus.connect import server_ms
from esper.bus.group.outbox import Outbox
from esper.errors import BusError
from esper.leyline.entries import entry_ms

VERSION = "version"
LOST = b"lost"
"""When the stream was last written to, in milliseconds, if the record was lost then or later; when that was noticed,
where the stream is gone as well."""

log = structlog.get_logger()


class Counted(NamedTuple):
    """A field of the record of who reads a stream, there once some of the stream was read."""

    key: str
    field: bytes


class Record:
    """Each entry of the stream is written with a change of the record: a stream that was written to has one.

    Where neither is there, a run begins, or Redis has lost both. Then all begins anew, unless who reads the stream has
    counted some of it: on a Cluster that lies on another node.
    """

    def __init__(self, outbox: Outbox, stream: str, key: str, counted_in: Counted | None = None) -> None:
        self.outbox, self.stream, self.key, self._counted_in = outbox, stream, key, counted_in
        self._known: dict[bytes, bytes] = {}
        self._is_told = False

    async def read(self) -> dict[bytes, bytes]:
        """What is on record; where that alone is lost, what is known of it: without a version, and with `LOST`."""
        fields = await self.outbox.recall(self.key)
        if VERSION.encode() not in fields and (until_ms := await self._lost_ms()):
            fields = await self.outbox.recall(self.key)  # another may have written the first of both meanwhile
            if VERSION.encode() not in fields:
                self._tell()
                fields = {**self._known, LOST: str(until_ms).encode()}
                fields.pop(VERSION.encode(), None)
        self._known = dict(fields)
        return fields

    def note(self, changed: Mapping[str, bytes]) -> None:
        """These fields were put on record."""
        self._is_told &= not changed
        for name, value in changed.items():
            if value:
                self._known[name.encode()] = value
            else:
                self._known.pop(name.encode(), None)

    def _tell(self) -> None:
        """Once, though it is read again before there is anything to put on record."""
        if not self._is_told:
            log.error("history.lost", stream=self.stream, why=f"{self.key} is gone")
        self._is_told = True

    async def _lost_ms(self) -> int:
        """Until when something can have been on record; 0: nothing ever was."""
        return await self._written_ms() or await self._counted_ms()

    async def _counted_ms(self) -> int:
        if self._counted_in is None or self._counted_in.field not in await self.outbox.recall(self._counted_in.key):
            return 0
        return await server_ms(self.outbox.redis, self.stream)

    async def _written_ms(self) -> int:
        """When the stream was last written to; 0: never."""
        try:
            facts = await self.outbox.redis.xinfo_stream(self.stream)
        except BusError as error:
            if "no such key" in str(error):
                return 0
            raise
        return entry_ms(facts["last-generated-id"].decode())
