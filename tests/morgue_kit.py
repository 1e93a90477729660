"""Messages that are set aside as their readers set them aside."""

from __future__ import annotations

from esper.bus import connect
from esper.bus.group.delivery import Delivery
from esper.bus.group.inbox import Inbox
from esper.bus.group.outbox import Outbox
from esper.bus.group.settlement import Settlement, reject_spent
from esper.bus.names import key
from esper.bus.upkeep import dead
from esper.errors import RefusedError
from esper.leyline import commands, contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.bus_kit import drain, put
from tests.scripted import ScriptedRun


class Morgue:
    """Sets messages of one run aside, as their readers do."""

    def __init__(self, run: ScriptedRun, reader: connect.Redis) -> None:
        self.run, self.reader = run, reader
        keys = run.master.derive(run.run_id, [Role.CONTROLLER])
        self.sealer = Sealer(keys, Role.CONTROLLER, "someone")

    async def poison(self, command: pb.AdaptationCommand, group: str = "coordinator") -> str:
        """A genuine command that was handed over five times and never settled."""
        return await self.spent("commands", self.sealer.seal(command), group)

    async def spent(self, stream: str, sealed: bytes, group: str = "coordinator") -> str:
        settlement = Settlement()
        delivery = await self.delivered(stream, sealed, group)
        reject_spent(
            settlement, Delivery(*(delivery.stream, delivery.group, delivery.entry_id, sealed), 6, delivery.consumer)
        )
        return await self.settled(settlement)

    async def junk(self, body: bytes) -> str:
        """Bytes that no key had sealed."""
        settlement = Settlement()
        delivery = await self.delivered("commands", body, "coordinator")
        settlement.reject(delivery, RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "the seal does not fit"))
        return await self.settled(settlement)

    async def delivered(self, stream: str, sealed: bytes, group: str) -> Delivery:
        name = key(self.run.run_id, stream)
        await put(self.run.redis, name, sealed)
        return (await drain(Inbox(self.reader, self.run.redis, name, group, "c")))[-1]

    async def settled(self, settlement: Settlement) -> str:
        await Outbox(self.run.redis).settle(settlement)
        return (await self.letters())[-1]

    async def letters(self) -> list[str]:
        return [letter.entry_id async for letter in dead.letters(self.run.redis, self.run.run_id, dead.Choice())]


def cull() -> pb.AdaptationCommand:
    return commands.seed("s0", pb.SeedOperation.SEED_OP_CULL)
