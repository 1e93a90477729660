"""Puts what a trainer tells for good on its stream, once."""

from __future__ import annotations

from dataclasses import dataclass

from esper.bus import names
from esper.bus.outbox import Outbox
from esper.bus.settlement import Settlement
from esper.errors import StaleLeaseError
from esper.leyline import contracts as pb
from esper.leyline.seal import Sealer


@dataclass(frozen=True, slots=True)
class Statements:
    """Beside the stream lies a hash: of each worker the newest number stored, and each report's id.

    Entry and hash are written in one call, which stands only if the hash is as it was read: a statement that is said
    again is known by its number, and a report that a resumed trainer comes to again by its id.
    """

    run_id: str
    worker: str
    outbox: Outbox
    sealer: Sealer

    async def store(self, statement: pb.Statement) -> None:
        """Return once it is stored, by this call or an earlier one."""
        record, mine = names.key(self.run_id, "stated"), f"worker/{self.worker}"
        while True:
            found = await self.outbox.recall(record)
            before = found.get(mine.encode())
            if _covers(before, statement):
                return
            settlement = Settlement()
            settlement.expect(record, mine, before)
            settlement.put(record, {mine: f"{statement.incarnation}:{statement.number}".encode()})
            self._write(settlement, record, statement, found)
            try:
                await self.outbox.settle(settlement)
                return
            except StaleLeaseError:
                continue  # somebody else has written: look again

    def _write(self, settlement: Settlement, record: str, statement: pb.Statement, found: dict[bytes, bytes]) -> None:
        stream = names.key(self.run_id, "state")
        if statement.WhichOneof("said") == "state":
            settlement.write(stream, self.sealer.seal(statement.state))
        elif (told := f"report/{statement.report.report_id}").encode() not in found:
            settlement.expect(record, told, None)
            settlement.put(record, {told: b"1"})
            settlement.write(stream, self.sealer.seal(statement.report))


def _covers(before: bytes | None, statement: pb.Statement) -> bool:
    incarnation, _, number = (before or b"0:0").decode().partition(":")
    return int(incarnation) == statement.incarnation and int(number) >= statement.number
