"""What a rank's breakers and the memory of its seeds must have come to, worked out a second time from receipts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from esper.leyline import contracts as pb
from esper.session import Session
from tests.garden.wrong import require

State, Reason = pb.CircuitBreakerState, pb.ReasonCode
APPLIED, GERMINATE = pb.ReceiptStatus.RECEIPT_APPLIED, pb.SeedOperation.SEED_OP_GERMINATE
CROWDS_FROM, ROOM = 220_000, 130
"""From this life on some have no more bytes for seeds than this."""
COPIES, SHORT = 4, 0.9
"""Of each parameter of a seed; the share of its limit from which on nothing is kept in pools."""


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
    _has_grown: bool = False  # by a seed, in this step

    def hear(self, order: pb.CommitOrder, receipts: Sequence[pb.CommandReceipt], now_s: float) -> None:
        """In the step in which the order was carried out."""
        for opened, receipt in zip(order.commands, receipts, strict=True):
            if opened.adaptation.seed_command.operation == GERMINATE:
                self._germinated(receipt, now_s)

    def _germinated(self, receipt: pb.CommandReceipt, now_s: float) -> None:
        opened = [name for name, fuse in self.fuses.items() if fuse.state(now_s) == State.BREAKER_OPEN]
        if receipt.reason == Reason.REASON_BREAKER_OPEN:
            self.num_refused += 1
            named = [name for name in self.fuses if f"the {name} breaker" in receipt.detail]
            require(named == opened[:1], f"{opened} are open, and a germination was answered: {receipt.detail}")
            return
        is_full = receipt.reason == Reason.REASON_OUT_OF_RANGE and " bytes; " in receipt.detail
        self._has_grown |= receipt.status == APPLIED
        if is_full or receipt.gate == pb.SeedLifecycleGate.SEED_GATE_G0_SANITY:
            require(not opened, f"a seed was germinated although {opened} are open: {receipt.detail}")
            self.fuses["kernel"].met.append((now_s, bool(receipt.evidence.get("fault"))))
            self.fuses["memory"].met.append((now_s, is_full))

    def look(self, now_s: float) -> None:
        """After a step."""
        for name, fuse in self.fuses.items():
            state = self.run.executor.breakers[name].state
            require(state == fuse.state(now_s), f"breaker {name} is {State.Name(state)} after {fuse.met[-12:]}")
        modules = [seed.module for seed in self.run.executor.seeds.values() if seed.module is not None]
        living = sum(each.numel() * each.element_size() for module in modules for each in module.parameters())
        pooled, limit = self.run.executor.kernels.pool.num_bytes, self.run.executor.settings.seeds_memory_bytes
        require(COPIES * living <= limit, f"seeds take {COPIES * living} of {limit} bytes")
        is_short, self._has_grown = self._has_grown and COPIES * living + pooled >= SHORT * limit, False
        require(not (is_short and pooled), f"pools keep {pooled} bytes beside seeds of {living}; {limit} are the limit")
