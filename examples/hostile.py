"""Throws one forged, one replayed and one stale command at a live run; succeeds when all three are refused."""

from __future__ import annotations

import asyncio
import hmac
import struct
import sys
import time
from contextlib import aclosing

from esper.bus import connect, names, tail
from esper.bus.publisher import Publisher
from esper.client import Controller
from esper.errors import CommandFailedError
from esper.leyline import commands, contracts as pb
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Sealer
from esper.runtime import access

PATIENCE_S = 30.0
TEN_MINUTES_NS = 600 * 10**9
ISSUED_AT_BYTE = 27  # where the envelope says when it was sealed
SEAL_BYTES = 32


async def main(run_name: str | None = None) -> int:
    """Exit status: 0 when each attack was refused."""
    found = await access.find(run_name)
    stream = names.key(found.run_id, "commands")
    async with connect.writer(found.redis_url) as redis, Controller.connect(run_name, name="hostile") as run:
        since = await run.observer.position(names.key(run.run_id, "receipts"))
        attacks = {
            "forged": forged(found.keyring),
            "replayed": await replayed(run, redis),
            "stale": stale(found.keyring),
        }
        entries = {await Publisher(redis).add(stream, sealed): attack for attack, sealed in attacks.items()}
        refusals = await refused(run, set(entries), since)
    for entry_id, attack in entries.items():
        answer = refusals.get(entry_id)
        said = f"refused as {reason_name(answer.reason)}: {answer.detail}" if answer else "not refused"
        print(f"{attack}: {said}")
    return 0 if set(refusals) == set(entries) else 1


def forged(keyring: RoleKeyring) -> bytes:
    """A command whose seal was made without the key."""
    sealed = Sealer(keyring, Role.CONTROLLER, "hostile").seal(commands.emergency("halt", "forged"))
    return sealed[:-1] + bytes([sealed[-1] ^ 1])


async def replayed(run: Controller, redis: connect.Redis) -> bytes:
    """A copy of a command that was judged a moment ago: one for a seed that nobody knows, which harms no run."""
    receipt = await run.resume("hostile")
    try:
        await receipt.accepted(PATIENCE_S)
    except CommandFailedError as error:
        print(f"original: {error.reason}, as it should be")
    entries = await tail.last(redis, names.key(run.run_id, "commands"), 64)
    return next(sealed for entry_id, sealed in entries if entry_id == receipt.entry_id)


def stale(keyring: RoleKeyring) -> bytes:
    """A command sealed with the right key, ten minutes ago by its own word."""
    sealed = bytearray(Sealer(keyring, Role.CONTROLLER, "hostile").seal(commands.emergency("halt", "stale")))
    issued_at_ns = time.time_ns() - TEN_MINUTES_NS
    struct.pack_into(">Q", sealed, ISSUED_AT_BYTE, issued_at_ns)
    _, key = keyring.seal_key(Domain.COMMAND, Role.CONTROLLER, time.time_ns())
    return bytes(sealed[:-SEAL_BYTES]) + hmac.digest(key, bytes(sealed[:-SEAL_BYTES]), "sha256")


async def refused(run: Controller, entries: set[str], since: str) -> dict[str, pb.CommandReceipt]:
    """The rejections of these entries, waited for until all are there or patience ends."""
    refusals: dict[str, pb.CommandReceipt] = {}
    try:
        async with asyncio.timeout(PATIENCE_S), aclosing(run.telemetry("receipts", since)) as receipts:
            async for opened in receipts:
                answer = opened.message
                if isinstance(answer, pb.CommandReceipt) and answer.entry_id in entries and rejection(answer):
                    refusals[answer.entry_id] = answer
                    if set(refusals) == entries:
                        break
    except TimeoutError:
        pass
    return refusals


def rejection(answer: pb.CommandReceipt) -> bool:
    return answer.status == pb.ReceiptStatus.RECEIPT_REJECTED


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:2])))
