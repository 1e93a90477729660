"""What a rank's breakers and the memory of its seeds must have come to, worked out a second time from receipts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import nn

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden.wrong import require

State, Reason = pb.CircuitBreakerState, pb.ReasonCode
APPLIED, GERMINATE = pb.ReceiptStatus.RECEIPT_APPLIED, pb.SeedOperation.SEED_OP_GERMINATE
CROWDS_FROM, ROOM = 220_000, 130
"""From this life on some have no more bytes for seeds than this."""
COPIES, FILLING, SHORT = 4, 0.85, 0.9
"""Of each parameter of a seed; the shares of its limit from which on it is told, and nothing is kept in pools."""
TOLD = re.compile(r".* needs (\d+) bytes; (-?\d+) of (\d+) are free")


@dataclass
class Fuse:
    """One breaker, by all that it ever met: so many failures within a window open it, for a while."""

    threshold: int
    window_s: float
    open_s: float
    met: list[tuple[float, bool]] = field(default_factory=list)  # when, and whether it was a failure

    def state(self, now_s: float) -> pb.CircuitBreakerState:
        since, opened = 0, float("-inf")  # since it was closed, and when it opened
        for at, (when, failed) in enumerate(self.met):
            is_tried = opened > float("-inf") and when >= opened + self.open_s
            if not failed and is_tried:
                since, opened = at + 1, float("-inf")
            recent = [each for each, bad in self.met[since : at + 1] if bad and each > when - self.window_s]
            if failed and (is_tried or len(recent) >= self.threshold):
                opened = when
        if opened == float("-inf"):
            return State.BREAKER_CLOSED
        return State.BREAKER_OPEN if now_s < opened + self.open_s else State.BREAKER_HALF_OPEN


@dataclass
class Fuses:
    """Those that germinations feed. Breakers go by steps here."""

    run: Session
    fuses: dict[str, Fuse] = field(
        default_factory=lambda: {"kernel": Fuse(10, 30.0, 30.0), "memory": Fuse(5, 60.0, 60.0)}
    )
    num_refused: int = 0
    num_full: int = 0
    num_filling: int = 0
    _has_grown: bool = False  # by a seed, in this step
    _has_tried: bool = False  # to
    _is_told: bool = False  # in this step, that memory runs short
    _held: dict[str, int] = field(default_factory=dict)  # bytes of each seed as of the step before
    _pooled: int = 0

    def __post_init__(self) -> None:
        budget = self.run.executor._moves.guards.budget
        tell = budget.filling

        def filling() -> None:
            self._is_told, self.num_filling = True, self.num_filling + 1
            tell()

        budget.filling = filling

    def hear(self, order: pb.CommitOrder, receipts: Sequence[pb.CommandReceipt], now_s: float) -> None:
        """In the step in which the order was carried out."""
        for opened, receipt in zip(order.commands, receipts, strict=True):
            if opened.adaptation.seed_command.operation == GERMINATE:
                self._germinated(receipt, now_s)
                if len(order.commands) == 1 and not order.commit.requests:
                    self._look_at_answer(opened.adaptation.seed_command.seed_id, receipt)

    def _look_at_answer(self, name: str, receipt: pb.CommandReceipt) -> None:
        """Of what is told to be free, nothing is held by a seed that was culled."""
        found = TOLD.fullmatch(receipt.detail)
        if found is not None:
            needed, free, limit = map(int, found.groups())
            others = COPIES * sum(held for seed_id, held in self._held.items() if seed_id != name)
            require(free == limit - others < needed, f"{receipt.detail}, where others hold {others}")
            self.num_full += 1

    def _germinated(self, receipt: pb.CommandReceipt, now_s: float) -> None:
        opened = [name for name, fuse in self.fuses.items() if fuse.state(now_s) == State.BREAKER_OPEN]
        if receipt.reason == Reason.REASON_BREAKER_OPEN:
            self.num_refused += 1
            named = [name for name in self.fuses if f"the {name} breaker" in receipt.detail]
            require(named == opened[:1], f"{opened} are open, and a germination was answered: {receipt.detail}")
            return
        is_full = receipt.reason == Reason.REASON_OUT_OF_RANGE and " bytes; " in receipt.detail
        self._has_grown |= receipt.status == APPLIED
        self._has_tried = True
        if is_full or receipt.gate == pb.SeedLifecycleGate.SEED_GATE_G0_SANITY:
            require(not opened, f"a seed was germinated although {opened} are open: {receipt.detail}")
            self.fuses["kernel"].met.append((now_s, bool(receipt.evidence.get("fault"))))
            self.fuses["memory"].met.append((now_s, is_full))

    def look(self, now_s: float) -> None:
        """After a step."""
        for name, fuse in self.fuses.items():
            state = self.run.executor.breakers[name].state
            require(state == fuse.state(now_s), f"breaker {name} is {State.Name(state)} after {fuse.met[-12:]}")
        held = {name: _num_bytes(seed.module) for name, seed in self.run.executor.seeds.items()}
        living, before = sum(held.values()), COPIES * sum(self._held.values()) + self._pooled
        pooled, limit = self.run.executor.kernels.pool.num_bytes, self.run.executor.settings.seeds_memory_bytes
        require(COPIES * living <= limit, f"seeds take {COPIES * living} of {limit} bytes")
        has_grown, self._has_grown = self._has_grown, False
        is_short = has_grown and COPIES * living + pooled >= SHORT * limit
        require(not (is_short and pooled), f"pools keep {pooled} bytes beside seeds of {living}; {limit} are the limit")
        fills = has_grown and before < FILLING * limit <= COPIES * living
        require(self._is_told or not fills, f"not told: seeds take {COPIES * living} of {limit} bytes")
        require(self._has_tried or not self._is_told, "it is told that memory runs short, where nobody asked for any")
        self._held, self._pooled, self._has_tried, self._is_told = held, pooled, False, False


def _num_bytes(module: nn.Module | None) -> int:
    return 0 if module is None else sum(each.numel() * each.element_size() for each in module.parameters())
