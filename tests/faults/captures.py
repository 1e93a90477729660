"""What somebody without keys has captured of one run, and the ways to add it again."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from esper.leyline import commands, contracts as pb
from esper.leyline.envelope import unpack
from esper.leyline.kinds import Role, type_of
from esper.leyline.seal import EVERYONE, Sealer

Verdict: TypeAlias = str | None
"""Why an envelope is refused; None: it is opened, known as one that took effect, and acknowledged without any."""


@dataclass(slots=True)
class Captures:
    """Envelopes of one run's producers. Seals what these publish; adds nothing to Redis."""

    chance: random.Random
    sealers: Mapping[Role, Sealer]
    generation: int = 0  # of the roster that is now
    by_generation: defaultdict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    old: list[bytes] = field(default_factory=list)
    in_hand: list[bytes] = field(default_factory=list)
    targeted: list[bytes] = field(default_factory=list)
    due: list[str] = field(default_factory=list)  # ids of commands that are published

    def publish(self, count: int, target: str = EVERYONE, sealer: Sealer | None = None) -> list[bytes]:
        """Seal commands that are about to be added to their stream."""
        return [self._sealed(sealer or self.sealers[Role.CONTROLLER], target) for _ in range(count)]

    def skip(self, count: int) -> None:
        """Have the controller seal commands that nobody ever gets to see."""
        for _ in range(count):
            self.sealers[Role.CONTROLLER].seal(command("never sent"), roster_generation=self.generation)

    def _sealed(self, sealer: Sealer, target: str) -> bytes:
        self.due.append(f"{target}/{len(self.due)}")
        return sealer.seal(command(self.due[-1]), target=target, roster_generation=self.generation)

    # -- one of them -------------------------------------------------------------------------------------------------

    def newest(self) -> bytes:
        return self.chance.choice(self.by_generation[self.generation])

    def of_another_roster(self) -> bytes:
        return self.chance.choice(self.by_generation[self.chance.randrange(self.generation)])

    def one_old(self) -> bytes:
        return self.chance.choice(self.old)

    def one_in_hand(self) -> bytes:
        return self.chance.choice(self.in_hand)

    def one_targeted(self) -> bytes:
        return self.chance.choice(self.targeted)

    def sealed_anew(self) -> bytes:
        """No capture: what the producer itself could add when a reply was lost for long."""
        return sealed_anew(self.sealers[Role.CONTROLLER], self.newest())

    def receipt_of_worker(self) -> bytes:
        return self.sealers[Role.WORKER].seal(receipt())

    def receipt_of_coordinator(self) -> bytes:
        return self.sealers[Role.COORDINATOR].seal(receipt())


def command(command_id: str) -> pb.AdaptationCommand:
    made = commands.seed("s", pb.SeedOperation.SEED_OP_CULL)
    made.command_id = command_id
    return made


def receipt() -> pb.CommandReceipt:
    applied = pb.ReceiptStatus.RECEIPT_APPLIED
    return pb.CommandReceipt(
        version=1, command_id="c", status=applied, worker="w", entry_id="1-0", time_ns=time.time_ns()
    )


class Way(NamedTuple):
    """Which captures go into which stream of which run, and what meets them there."""

    capture: Callable[[Captures], bytes]
    alone: Verdict  # by a consumer with windows of its own
    team: Verdict = None
    stream: str = "commands"
    elsewhere: bool = False  # in another run


STILL_IN_HAND = "still_in_hand"
WAYS: Mapping[str, Way] = {
    "same_stream": Way(Captures.newest, "replayed"),
    "other_stream": Way(Captures.newest, "wrong_context", "wrong_context", stream="optimizer"),
    "other_run": Way(Captures.newest, "bad_seal", "bad_seal", elsewhere=True),
    "other_domain": Way(Captures.receipt_of_worker, "wrong_context", "wrong_context"),
    "other_role": Way(Captures.receipt_of_coordinator, "unknown_key", "unknown_key"),
    "other_target": Way(Captures.one_targeted, "replayed", "wrong_context"),
    "other_roster": Way(Captures.of_another_roster, "replayed"),
    "old_capture": Way(Captures.one_old, "stale", "stale"),
    "sealed_anew": Way(Captures.sealed_anew, "duplicate"),
    STILL_IN_HAND: Way(Captures.one_in_hand, "replayed"),
}


def sealed_anew(by: Sealer, sealed: bytes) -> bytes:
    """The same message under the same sequence, sealed now, which no sealer does by itself."""
    parts = unpack(sealed)
    header, newest = parts.header, by._sequences[parts.header.target]
    message = type_of(header.kind).FromString(sealed[parts.body_start : parts.body_end])
    by._sequences[header.target] = header.sequence - 1
    again = by.seal(message, target=header.target, roster_generation=header.roster_generation)
    by._sequences[header.target] = newest
    return again
