"""The coordinator's rule at its streams: whoever leads reads, settles, dies and is followed."""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.leyline.succession import Decision, Said, Succession, in_force
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from esper.tamiyo.overdue import ROUND_NS
from tests.town.log import Log

MS, S = 1_000_000, 1_000_000_000
TICK_NS = 300 * MS
LOGS = ("commands", "optimizer", "votes", "heartbeats")
GROUP = "coordinator"
OLD = RefusedError(pb.ReasonCode.REASON_STALE, "it is older than a minute")


class Seat:
    """Who leads, as its desk sees it. AssertionError: it does what no order of arrival may make it do."""

    def __init__(self) -> None:
        self.now_ns = 1_700_000_000 * S
        self.numbers = count(1)
        self.logs: dict[str, Log[Any]] = {name: Log() for name in (*LOGS, "decisions")}
        self.answers: Counter[int] = Counter()
        self.asked: dict[int, tuple[str, ...]] = {}  # of the open round, if one is
        self.opened_ns = self.ticked_ns = self.num_rounds = 0
        self.met: set[int] = set()

    def add(self, log: str, what: object) -> int:
        at = next(self.numbers)
        self.logs[log].entries[at] = what
        return at

    def lead(self) -> None:
        """A new process leads, and knows what is on record."""
        self.rule, succession = Coordinator(GROUP), Succession()
        self.held: set[Entry] = set()
        self.again = {name: list(self.logs[name].left(GROUP)) for name in LOGS}
        said: list[Said] = list(self.logs["decisions"].entries.values())
        outcome = self.rule.resume(in_force(said, succession))
        self.token = succession.next_token(self.now_ns // MS)
        self.add("decisions", pb.LeaderAnnouncement(version=1, leader=GROUP, lease_token=self.token))
        self.settle(outcome)

    def settle(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            said = type(decision)()
            said.CopyFrom(decision)  # type: ignore[arg-type]
            said.lease_token = self.token
            self.add("decisions", said)
            self._note(said)
        self.answers.update(int(receipt.entry_id.partition("-")[0]) for receipt in outcome.receipts)
        for name, entry_id in outcome.done:
            assert (name, entry_id) in self.held, f"entry {entry_id} of :{name} is done with twice"
            self.held.discard((name, entry_id))
            self.logs[name].ack(GROUP, int(entry_id.partition("-")[0]))

    def _note(self, said: Decision) -> None:
        if not isinstance(said, pb.BarrierProposal):
            self.asked.pop(said.round, None)
            return
        assert not self.waits(), f"round {said.round} is proposed, and somebody waits for {list(self.asked)}"
        self.num_rounds += 1
        self.asked, self.opened_ns = {said.round: tuple(said.roster)}, self.now_ns

    def waits(self) -> bool:
        """Whether anybody of whom the open round has asked a vote is here."""
        return bool(self.asked)

    def tick(self) -> None:
        self.settle(self.rule.tick(self.now_ns))
        self.ticked_ns = self.now_ns
        late_ns = self.now_ns - self.opened_ns - ROUND_NS
        assert not self.waits() or late_ns <= TICK_NS, f"round {list(self.asked)} lasts {late_ns / S:g} s too long"

    def pass_time(self, ms: int) -> None:
        self.now_ns += ms * MS
        if self.now_ns - self.ticked_ns >= TICK_NS:
            self.tick()

    def reads(self, name: str) -> bool:
        """The next entry of a stream; False: there is none."""
        at = self.again[name].pop(0) if self.again[name] else self.logs[name].take(GROUP)
        if at is not None:
            self._answer(name, at)
        return at is not None

    def _answer(self, name: str, at: int) -> None:
        what, entry = self.logs[name].entries[at], (name, f"{at}-0")
        self.held.add(entry)
        match what:
            case pb.Heartbeat():
                outcome = self.rule.on_heartbeat(what, self.now_ns)
                outcome.done.append(entry)
            case pb.BarrierVote():
                outcome = self.rule.on_vote(what, entry, self.now_ns)
            case Opened():
                outcome = self.rule.on_command(name, what._replace(redelivered=at in self.met), self.now_ns)
                self.met.add(at)
            case _:
                outcome = self.rule.on_refused(entry, OLD, self.now_ns)
                outcome.done.append(entry)
        self.settle(outcome)

    def lose_history(self) -> None:
        for log in self.logs.values():
            log.lose()
        gone, self.held = set(self.held), set()
        self.again = {name: [] for name in LOGS}
        self.asked.clear()
        self.settle(self.rule.on_history_lost(gone, self.now_ns, begins_anew=True))
