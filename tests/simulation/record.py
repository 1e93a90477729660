"""What the world has seen: written down beside the server, from its commands and replies alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from esper.bus.group.script import RELEASE
from esper.bus.protocol import Ask
from tests.simulation.model import Model
from tests.simulation.stream import Id, Stream, pack

RUN = "sim-00000000"
JOBS, ORDERS, EFFECTS, DEAD = (f"esper:{{{RUN}}}:{name}" for name in ("jobs", "orders", "effects", "dead"))
Key = str  # producer/incarnation/sequence


@dataclass(slots=True)
class Sent:
    """One message of a producer: when it was first sent, whether its publish was acknowledged, how it is."""

    stream: str
    sealed: bytes
    tried_s: float
    acknowledged: bool = False
    poison: bool = False


@dataclass(slots=True)
class Record:
    """Effects of the shared group live in Redis, and are lost with it; those of ranks live with the rank."""

    sent: dict[Key, Sent] = field(default_factory=dict)
    forged: dict[str, str] = field(default_factory=dict)  # stream and entry -> how it was made
    genuine: set[str] = field(default_factory=set)  # entries that a producer made, in the same form
    effects: dict[Id, bytes] = field(default_factory=dict)  # entries of the stream of effects
    dead: dict[Id, dict[bytes, bytes]] = field(default_factory=dict)
    local: dict[str, list[bytes]] = field(default_factory=dict)  # effects of each rank
    deliveries: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # stream, group, entry
    attempts_at_death: dict[Id, int] = field(default_factory=dict)
    handled: Counter[tuple[str, str]] = field(default_factory=Counter)  # group, entry: by a handler that fails
    faults: Counter[str] = field(default_factory=Counter)
    largest: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    lost_at_s: float = -1.0
    num_crashes: int = 0

    def look(self, model: Model, ask: Ask, reply: Any) -> None:
        """Take down what a command did, from the server's side."""
        verb = ask.words[0]
        if verb == "XREADGROUP" and reply:
            stream, group = str(ask.words[-2]), str(ask.words[2])
            for entry_id, fields in reply[0][1]:
                if fields:
                    self.deliveries[stream, group, entry_id.decode()] += 1
        elif verb == "XADD":
            self.genuine.add(f"{ask.words[1]!s} {reply.decode()}")
        elif verb in ("EVALSHA", "EVAL"):
            self.take_new(model)
            if ask.words[1] in RELEASE and reply[0]:  # what was read and never handed over does not count
                stream, group, unread = str(ask.words[3]), str(ask.words[4]), ask.words[7:]
                self.deliveries.subtract((stream, group, str(entry_id)) for entry_id in unread)

    def forget_deliveries(self) -> None:
        """A group that is made again counts anew."""
        self.deliveries.clear()

    def take_new(self, model: Model) -> None:
        """Effects and dead letters that are there now, and were not before."""
        effects = model.keys.find(EFFECTS.encode(), Stream)
        if effects is not None:
            for at in effects.order[len(self.effects) :]:
                self.effects[at] = effects.entries[at][1]
        dead = model.keys.find(DEAD.encode(), Stream)
        for at in dead.order if dead is not None else ():
            if at not in self.dead:
                flat = dead.entries[at] if dead is not None else ()
                letter = self.dead[at] = dict(zip(flat[::2], flat[1::2], strict=True))
                place = tuple(letter[name].decode() for name in (b"stream", b"group", b"entry_id"))
                self.attempts_at_death[at] = self.deliveries[place[0], place[1], place[2]]

    def fell_back(self, model: Model) -> None:
        """The server holds less than before: what it lost of effects and dead letters never was."""
        effects = model.keys.find(EFFECTS.encode(), Stream)
        self.effects = {} if effects is None else {at: effects.entries[at][1] for at in effects.order}
        dead = model.keys.find(DEAD.encode(), Stream)
        self.dead = {at: letter for at, letter in self.dead.items() if dead is not None and at in dead.entries}

    def place_of(self, at: Id) -> str:
        return pack(at).decode()

    def expect(self, holds: bool, sentence: str) -> None:
        if not holds:
            self.violations.append(sentence)

    def measure(self, what: str, size: int) -> None:
        self.largest[what] = max(self.largest[what], size)
