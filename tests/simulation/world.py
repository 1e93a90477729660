"""Virtual time, one server, and the line between it and the actors: everything that happens is drawn from one seed."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from esper.bus.faults import LostError, NoGroupError, NoScriptError, of_answer
from esper.bus.protocol import Ask, Pause, Steps, Surroundings
from esper.errors import EsperError
from tests.simulation.model import RefusalError, Value
from tests.simulation.plan import Plan
from tests.simulation.record import Record
from tests.simulation.server import server

START_MS = 1_800_000_000_000
READ_MARGIN_S, WRITE_S = 5.0, 10.0  # after which a client gives a command up
LONGEST_LATE_S = 14.0  # less than consumers wait for what is on its way
WAKES = {"XADD", "XGROUP", "EVAL", "EVALSHA"}  # after which a read that waits may go on

Body: TypeAlias = Callable[["Life"], Steps[None]]


class PoisonedError(Exception):
    """A handler that kills its process."""


@dataclass(slots=True, eq=False)
class Life:
    """One incarnation of an actor: dies in a crash, with all that it remembers."""

    world: World
    name: str
    number: int
    body: Body
    steps: Steps[None] = field(init=False)
    alive: bool = True
    turn: int = 0  # what was answered to an earlier turn comes too late

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(lambda: self.world.now_s, random.Random(self.world.dice.random()))

    @property
    def consumer(self) -> str:
        return f"{self.name}-{self.number}"


@dataclass(slots=True, eq=False)
class Blocked:
    """A read that waits on the server; of a dead client's it may not know that."""

    ask: Ask
    stream: bytes
    answer: Callable[[Any, EsperError | None], None]
    life: Life
    over: bool = False


class World:
    """Runs lives until nothing is left to do. `calm` ends all trouble."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self.plan, self.record, self.dice = plan, record, random.Random(f"world {plan.seed}")
        self.now_s, self.offset_ms, self.calm = 0.0, 0, False
        self.model = server(self.server_ms, plan.version)
        self.trace: list[str] | None = None
        self.snapshots: list[tuple[float, dict[bytes, Value]]] = []
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._blocked: list[Blocked] = []
        self.producers: list[Any] = []

    def server_ms(self) -> int:
        return START_MS + int(self.now_s * 1000) + self.offset_ms

    def note(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.now_s:9.3f} {who:<12} {what}")

    # -- time ------------------------------------------------------------------------------------------------------

    def after(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (self.now_s + delay_s, next(self._order), act))

    def run(self, until_s: float, done: Callable[[], bool]) -> None:
        """Let time pass, until it is done or late."""
        while self._agenda and self._agenda[0][0] <= until_s and not done():
            self.now_s, _, act = heapq.heappop(self._agenda)
            act()

    # -- lives -----------------------------------------------------------------------------------------------------

    def start(self, name: str, body: Body, number: int = 0) -> None:
        life = Life(self, name, number, body)
        life.steps = body(life)
        self.note(life.consumer, "starts")
        self.resume(life, lambda: next(life.steps))

    def crash(self, life: Life, why: str) -> None:
        """It is gone at once, and starts again a while later under a new number."""
        if not life.alive:
            return
        life.alive = False
        self.note(life.consumer, f"dies: {why}")
        self.record.num_crashes += 1
        for blocked in self._blocked:  # the server may not notice that the line is cut
            if blocked.life is life and self.dice.random() < 0.7:
                blocked.over = True
        life.steps.close()
        self.after(self.dice.uniform(0.05, 3.0), lambda: self.start(life.name, life.body, life.number + 1))

    def resume(self, life: Life, go_on: Callable[[], Ask | Pause]) -> None:
        if not life.alive:
            return
        life.turn += 1
        try:
            step = go_on()
        except StopIteration:
            life.alive = False
            self.note(life.consumer, "ends")
        except (EsperError, PoisonedError) as error:
            self.crash(life, repr(error))
        else:
            self.carry_out(life, step)

    def carry_out(self, life: Life, step: Ask | Pause) -> None:
        if isinstance(step, Pause):
            self.after(step.seconds, lambda: self.resume(life, lambda: life.steps.send(False)))
            return
        turn = life.turn

        def answer(reply: Any, error: EsperError | None) -> None:
            if life.turn != turn or not life.alive:
                return
            if error is None:
                self.resume(life, lambda: life.steps.send(reply))
            else:
                self.resume(life, lambda: life.steps.throw(error))

        self.send(life, step, answer)

    # -- the line --------------------------------------------------------------------------------------------------

    def send(self, life: Life, ask: Ask, answer: Callable[[Any, EsperError | None], None]) -> None:
        """Draw what befalls the command on its way, and the reply on its way back."""
        fate = self.fate()
        if fate == "crash before":
            self.crash(life, "before it asks")
            return
        delay_s = self.dice.uniform(0.0002, 0.002)
        if fate == "lost request":
            self.note(life.consumer, f"request lost: {shown(ask)}")
            self.after(delay_s, lambda: answer(None, LostError("the line broke")))
            return
        if fate == "late":
            delay_s = self.dice.uniform(0.5, LONGEST_LATE_S)
            patience_s = WRITE_S if ask.block_ms is None else ask.block_ms / 1000 + READ_MARGIN_S
            self.after(patience_s, lambda: answer(None, LostError("no answer in time")))
        self.after(delay_s, lambda: self.arrive(life, ask, fate, answer))

    def fate(self) -> str:
        if self.calm:
            return ""
        crash, lost, late = self.plan.crash, self.plan.lost, self.plan.late
        drawn = self.dice.random()
        for name, share in (
            ("crash before", crash / 2),
            ("crash after", crash / 2),
            ("lost request", lost / 2),
            ("lost reply", lost / 2),
            ("late", late),
            ("asleep", late),
        ):
            if drawn < share:
                self.record.faults[name] += 1
                return name
            drawn -= share
        return ""

    def arrive(self, life: Life, ask: Ask, fate: str, answer: Callable[[Any, EsperError | None], None]) -> None:
        """The command takes effect, whoever is still there to hear of it."""

        def deliver(reply: Any, error: EsperError | None) -> None:
            if fate == "crash after":
                self.crash(life, f"before it hears of {shown(ask)}")
                return
            if fate == "lost reply":
                self.note(life.consumer, f"reply lost: {shown(ask)}")
                error = LostError("the line broke")
            back_s = self.dice.uniform(0.5, LONGEST_LATE_S) if fate == "asleep" else self.dice.uniform(0.0002, 0.002)
            self.after(back_s, lambda: answer(reply, error))

        reply, error = self.execute(life.consumer, ask)
        if reply is None and error is None and ask.block_ms:
            stream = str(ask.words[-2]).encode()
            blocked = Blocked(ask, stream, deliver, life)
            self._blocked.append(blocked)
            self.after(ask.block_ms / 1000, lambda: self.end_block(blocked, None, None))
        else:
            deliver(reply, error)
        if ask.words[0] in WAKES:
            self.wake()

    def execute(self, who: str, ask: Ask) -> tuple[Any, EsperError | None]:
        """Carry out one command on the server, and note what it did."""
        try:
            reply = self.model.call(*ask.words)
        except RefusalError as refusal:
            self.note(who, f"{shown(ask)} -> {refusal}")
            return None, refused(str(refusal))
        if self.trace is not None and (reply is not None or not ask.block_ms):  # text that is seldom read takes long
            self.note(who, f"{shown(ask)} -> {str(reply)[:160]}")
        self.record.look(self.model, ask, reply)
        return reply, None

    def wake(self) -> None:
        """Serve reads that wait, in the order in which they came."""
        for blocked in list(self._blocked):
            if blocked.over:
                continue
            if self.model.keys.type_of(blocked.stream) == b"none":
                if self.plan.version >= (7, 0):
                    self.end_block(blocked, None, refused("UNBLOCKED the stream key no longer exists"))
                continue
            reply, error = self.execute(blocked.life.consumer, blocked.ask)
            if reply is not None or error is not None:
                self.end_block(blocked, reply, error)
        self._blocked = [blocked for blocked in self._blocked if not blocked.over]

    def end_block(self, blocked: Blocked, reply: Any, error: EsperError | None) -> None:
        if not blocked.over:
            blocked.over = True
            blocked.answer(reply, error)

    # -- what befalls the server -----------------------------------------------------------------------------------

    def command(self, *words: bytes | str) -> Any:
        """An operator's or an adversary's command, on a line that never fails."""
        with suppress(RefusalError):
            reply = self.model.call(*words)
            self.note("hand", f"{shown(Ask(words))} -> {str(reply)[:80]}")
            self.wake()
            return reply

    def remember(self) -> None:
        self.snapshots.append((self.now_s, self.model.snapshot()))
        del self.snapshots[:-8]

    def fall_back(self) -> None:
        """What a failover to a replica that lagged does: all lines break, the newest writes are gone."""
        at_s, snapshot = self.dice.choice(self.snapshots)
        self.note("server", f"falls back to {at_s:.3f}")
        for blocked in self._blocked:
            self.end_block(blocked, None, LostError("the server went away"))
        self.model.restore(snapshot)
        self.record.fell_back(self.model)


def refused(text: str) -> EsperError:
    """The error that esper.bus gives for what a server says."""
    if text.startswith("NOSCRIPT"):
        return NoScriptError(text)
    if text.startswith("UNBLOCKED"):
        return NoGroupError(text)
    return of_answer("model", text, RefusalError(text))


def shown(ask: Ask) -> str:
    words = [word.decode(errors="replace") if isinstance(word, bytes) else str(word) for word in ask.words]
    return " ".join(word if len(word) < 48 and word.isprintable() else f"<{len(word)}>" for word in words)[:300]
