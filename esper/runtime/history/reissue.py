"""Turns a dead letter into a command that may be published again, by who holds the keys to publish it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from esper.bus.connect import Redis
from esper.bus.group.delivery import FIELD
from esper.bus.names import key
from esper.bus.upkeep.dead import Letter, entries
from esper.errors import RefusedError, SettingError
from esper.leyline import contracts as pb
from esper.leyline.checks import MS_NS
from esper.leyline.envelope import DeadlineKind, Header, unpack
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer

JUDGE = "coordinator"
"""The group whose refusal means that a command took no effect anywhere: commits name only what it has accepted."""
LOGS = {"commands": (Domain.COMMAND, Role.CONTROLLER), "optimizer": (Domain.OPTIMIZER, Role.OPTIMIZER)}
TOOK_EFFECT = (pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED)


@dataclass(frozen=True, slots=True)
class Reissued:
    """A command under a fresh seal, and where it goes. Its id is the old one."""

    stream: str
    message: pb.AdaptationCommand | pb.OptimizerCommand
    sealed: bytes

    @property
    def command_id(self) -> str:
        return self.message.command_id


def opened(letter: Letter, keyring: RoleKeyring, now_ms: int) -> Opened:
    """The letter's message, as its first reader would have opened it. RefusedError where it is not genuine."""
    assert letter.kept is not None
    target = unpack(letter.kept).header.target
    opener = Opener(keyring, name=target, guard=None, accept=list(Domain), carries_out=True)
    return opener.open(letter.kept, letter.origin_id, now_ms)


class Reissuer:
    """Seals commands anew, as one producer. The old envelope would be refused: its bytes were met, and are stale."""

    def __init__(self, keyring: RoleKeyring, producer: str) -> None:
        self._keyring = keyring
        self._sealers = {
            name: Sealer(keyring, role, producer) for name, (_, role) in LOGS.items() if role in keyring.roles
        }

    def reissue(self, letter: Letter, now_ms: int) -> Reissued:
        """The command under a fresh seal. SettingError: this letter can't be replayed; RefusedError: nor believed."""
        run_id = self._keyring.run_id
        log = next((name for name in LOGS if letter.text("stream") == key(run_id, name)), None)
        if letter.kept is None:
            raise _unfit(letter, "one whose whole message was kept; of this one there is its hash and its head")
        if log is None or letter.text("group") != JUDGE:
            raise _unfit(letter, f"a command that the {JUDGE} refused; anything else only its own sealer can say again")
        if log not in self._sealers:
            role = LOGS[log][1]
            raise SettingError("keyring", f"for {', '.join(self._keyring.roles)}", f"one for {role}, to seal :{log}")
        found = opened(letter, self._keyring, now_ms)
        message, header = found.message, found.header
        if not isinstance(message, pb.AdaptationCommand | pb.OptimizerCommand) or header.domain is not LOGS[log][0]:
            raise RefusedError(pb.ReasonCode.REASON_WRONG_TYPE, f"a {type(message).__name__} was never for :{log}")
        sealed = self._sealers[log].seal(
            message,
            target=header.target,
            deadline=_as_long_again(header, now_ms),
            roster_generation=header.roster_generation,
        )
        return Reissued(key(run_id, log), message, sealed)


async def accepted(redis: Redis, keyring: RoleKeyring, now_ms: int) -> AsyncIterator[str]:
    """Ids of the commands that the run's receipts show to have been accepted: once more would be twice."""
    opener = Opener(keyring, guard=None, accept=[Domain.RECEIPT])
    async for entry_id, fields in entries(redis, key(keyring.run_id, "receipts")):
        try:
            receipt = opener.open(fields.get(FIELD, b""), entry_id.decode(), now_ms).message
        except RefusedError:
            continue
        if isinstance(receipt, pb.CommandReceipt) and receipt.status in TOOK_EFFECT:
            yield receipt.command_id


def _as_long_again(header: Header, now_ms: int) -> tuple[DeadlineKind, int]:
    """The time that its sender gave it, from now on: by the old deadline most letters would be void for good."""
    if header.deadline_kind is not DeadlineKind.TIME_NS:
        return header.deadline_kind, header.deadline
    return header.deadline_kind, now_ms * MS_NS + header.deadline - header.issued_at_ns


def _unfit(letter: Letter, expected: str) -> SettingError:
    return SettingError("dead letter", letter.entry_id, expected)
