"""Puts what a trainer tells for good on its stream, once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from esper.bus import names
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement
from esper.errors import StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.seal import Sealer

NEWEST = re.compile(rb"(\d{1,20}):(\d{1,20})")
"""Of one worker: its incarnation, and the number of what is stored."""


@dataclass(frozen=True, slots=True)
class Statements:
    """Beside the streams lies a hash: of each worker the newest number and round stored, and its reports' ids.

    Entry and hash are written in one call, which stands only if the hash is as it was read: a statement that is said
    again is known by its number, a round's outcomes by the round, and a report that a resumed trainer comes to again by
    its id.
    """

    run_id: str
    worker: str
    outbox: Outbox
    sealer: Sealer

    async def store(self, statement: pb.Statement) -> None:
        """Return once it is stored, by this call or an earlier one."""
        await self._once(f"worker/{self.worker}", statement.incarnation, statement.number, statement)

    async def store_judged(self, record: pb.RunRecord) -> None:
        """The same of what became of a round's requests, in the order of rounds."""
        await self._once(f"judged/{self.worker}", record.incarnation, record.judged.round, record)

    async def _once(self, mine: str, incarnation: int, number: int, said: pb.Statement | pb.RunRecord) -> None:
        record = names.key(self.run_id, "stated")
        while True:
            found = await self.outbox.recall(record)
            before = found.get(mine.encode())
            if _covers(before, incarnation, number):
                return
            settlement = Settlement()
            settlement.expect(record, mine, before)
            settlement.put(record, {mine: f"{incarnation}:{number}".encode()})
            if isinstance(said, pb.RunRecord):
                settlement.write(names.key(self.run_id, "receipts"), self.sealer.seal(said))
            else:
                self._write(settlement, record, said, found)
            try:
                await self.outbox.settle(settlement)
                return
            except StaleLeaseError:
                continue  # somebody else has written: look again

    def _write(self, settlement: Settlement, record: str, statement: pb.Statement, found: dict[bytes, bytes]) -> None:
        stream = names.key(self.run_id, "state")
        if statement.WhichOneof("said") == "state":
            settlement.write(stream, self.sealer.seal(statement.state))
        elif (told := f"report/{self.worker}/{statement.report.report_id}").encode() not in found:
            settlement.expect(record, told, None)
            settlement.put(record, {told: b"1"})
            settlement.write(stream, self.sealer.seal(statement.report))


def _covers(before: bytes | None, incarnation: int, number: int) -> bool:
    """Not where somebody else has written there: then it is written over."""
    found = NEWEST.fullmatch(before or b"")
    return found is not None and int(found[1]) == incarnation and int(found[2]) >= number
