"""The coordinator's rule at its streams: whoever leads reads, settles, dies and is followed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import cast

from esper.bus.connect import Redis
from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.checks import FRESH_MS
from esper.leyline.kinds import Domain, Role
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Opened, Opener, Sealer
from esper.leyline.succession import Decision, Said, Succession, in_force
from esper.runtime.coordinator.lookback import newest_said
from esper.runtime.coordinator.loop import NUM_DECISIONS
from esper.runtime.serving.clock_skew import DatedOpener
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from esper.tamiyo.overdue import ROUND_NS
from tests.simulation.arrivals import at_once
from tests.town.knowing import BEGIN_NS, MS, Clock, Sealed, Windows, keyring
from tests.town.log import COUNT_BITS, Log, Record, entry_id, number

TICK_NS = 500 * MS
LOGS = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER, "votes": Domain.VOTE, "heartbeats": Domain.HEARTBEAT}
STREAMS = (*LOGS, "decisions")
GROUP = "coordinator"
LINGERS_NS = FRESH_MS * MS + ROUND_NS + 31_000 * MS
"""After clocks were apart: for as long a copy of what was refused is fresh, a round may last, and a rank wait."""
OF_TIME = {"stale", "from_the_future", "unknown_key"}
"""Why a process refuses what was sealed, or is opened, by a clock that is not as the server's was."""


class Seat:
    """Who leads, as its loop sees it. AssertionError: it does what no order of arrival may make it do."""

    def __init__(self) -> None:
        self.passed_ns = 0  # since the town began, whatever clocks say
        self.set_ns = BEGIN_NS  # what the server's clock is ahead of that
        self.logs: dict[str, Log[bytes]] = {name: Log() for name in STREAMS}
        self.apart_ns = -LINGERS_NS  # when clocks were last apart and something was sealed or refused by that
        self.sealed: dict[bytes, Sealed] = {}
        self.answers: Counter[int] = Counter()  # by the number of the entry
        self.asked: dict[int, tuple[str, ...]] = {}  # of the open round, if one is
        self.proposal = b""  # the newest one
        self.opened_ns = self.ticked_ns = self.num_rounds = 0
        self.stored: dict[str, dict[str, bytes]] = {}  # of each group what its windows know
        self.lost = ""  # what Redis still holds of the loop's windows, where it is not whole

    @property
    def were_apart(self) -> bool:
        """Whether clocks were apart so lately that somebody may still wait for what was refused."""
        return self.passed_ns - self.apart_ns <= LINGERS_NS

    @property
    def now_ns(self) -> int:
        """By the server's clock, as the loop knows it."""
        return self.clock.now_ns()

    def server_ns(self) -> int:
        """By the server's clock as it is."""
        return self.passed_ns + self.set_ns

    def add(self, log: str, sealed: bytes) -> int:
        """No two entries of all streams have one number, so that an answer names one."""
        clock = (self.server_ns() // MS << COUNT_BITS) + STREAMS.index(log)
        return self.logs[log].add(sealed, clock, len(STREAMS))

    def says(self, log: str, sealed: bytes, clock: Clock | None = None) -> int:
        """Add what was sealed by this clock, or by the server's."""
        at = self.add(log, sealed)
        self.sealed[sealed] = Sealed(
            at >> COUNT_BITS, at, self.passed_ns, self.set_ns, clock is not None and clock.is_apart
        )
        return at

    def note_refused(self, reason: str, sealed: bytes, at: int, clock: Clock) -> None:
        """AssertionError: it was sealed by the server's clock, and read in time by who has seen that clock there."""
        was = self.sealed.get(sealed)
        if reason not in OF_TIME or was is None or was.at != at:  # a copy is as old as what it is of
            return
        if was.may_be_refused(clock, self.set_ns):
            self.apart_ns = self.passed_ns
            return
        assert self.passed_ns - was.passed_ns > FRESH_MS * MS, f"{reason} by clocks that agree"

    def lead(self) -> None:
        """A new process leads, and knows what is on record."""
        self.clock, self.lost, self.unmade = Clock(self), "", set[str]()
        self.rule, succession = Coordinator(GROUP), Succession()
        self.held: dict[Entry, bytes] = {}  # what it was when it was read
        self.windows = Windows(LOGS, self.stored.get(GROUP, {}))
        keys, guards = keyring(Role.COORDINATOR), self.windows.guards
        self.openers = {
            name: DatedOpener(keys, self.clock, guard=guards[name], accept=[domain]) for name, domain in LOGS.items()
        }
        self.sealer = Sealer(keys, Role.COORDINATOR, GROUP, clock_ns=self.clock.now_ns)
        self.again = {name: list(self.logs[name].left(GROUP)) for name in LOGS}
        outcome = self.rule.resume(in_force(self._said(), succession))
        self.rule.on_history_lost((), self._newest(), self.now_ns, again=False)
        self.token = succession.next_token(self.now_ns // MS)
        self._announce()
        self.settle(outcome)

    def _said(self) -> list[Said]:
        opener = DatedOpener(
            keyring(Role.COORDINATOR), self.clock, guard=None, accept=[Domain.DECISION], carries_out=True
        )
        redis = cast(Redis, Record(self.logs["decisions"]))
        read = partial(self._opened, opener)
        return [said for _, said in at_once(newest_said(redis, "decisions", read, NUM_DECISIONS))]

    def _opened(self, opener: Opener, sealed: bytes, at: str) -> Opened:
        try:
            return opener.open(sealed, at, self.clock.now_ms())
        except RefusedError as error:
            self.note_refused(reason_name(error.reason), sealed, number(at), self.clock)
            if sealed == self.proposal:  # who leads now knows of no such round
                self.asked.clear()
            raise

    def _announce(self) -> None:
        said = pb.LeaderAnnouncement(version=1, leader=GROUP, lease_token=self.token, time_ns=self.now_ns)
        self.says("decisions", self.sealer.seal(said), self.clock)

    def settle(self, outcome: Outcome) -> None:
        """In one call, which shows what Redis has lost of what was settled before."""
        self._publish(outcome)
        if self.lost and (outcome.decisions or outcome.receipts or outcome.done):
            self.claim_again()

    def claim_again(self) -> None:
        found, self.lost = self.lost, ""
        gone = {entry for entry, what in self.held.items() if self._there(entry) is not what}
        for entry in gone:
            del self.held[entry]
        self._persist()
        self._publish(self.rule.on_history_lost(gone, self._newest(), self.now_ns, again=bool(found)))

    def _persist(self) -> None:
        self.stored[GROUP] = self.windows.settle()

    def _there(self, entry: Entry) -> bytes | None:
        """What has this number now: another entry, where the log fell back and went on by a clock behind."""
        return self.logs[entry[0]].entries.get(number(entry[1]))

    def _newest(self) -> dict[str, str]:
        return {name: entry_id(max(self.logs[name].entries, default=0)) for name in ("commands", "optimizer")}

    def _publish(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            decision.lease_token = self.token
            if self.clock.is_apart:
                self.apart_ns = self.passed_ns
            sealed = self.sealer.seal(decision, roster_generation=decision.roster_generation)
            self.says("decisions", sealed, self.clock)
            self.proposal = sealed if isinstance(decision, pb.BarrierProposal) else self.proposal
            self._note(decision)
        self.answers.update(number(receipt.entry_id) for receipt in outcome.receipts)
        for name, at in outcome.done:
            assert (name, at) in self.held, f"an entry of :{name} is done with twice"
            del self.held[name, at]
            self.logs[name].ack(GROUP, number(at))

    def _note(self, said: Decision) -> None:
        if not isinstance(said, pb.BarrierProposal):
            self.asked.pop(said.round, None)
            return
        assert self.were_apart or not self.waits(), "a round is proposed, and somebody waits for another"
        self.num_rounds += 1
        self.asked, self.opened_ns = {said.round: tuple(said.roster)}, self.passed_ns

    def waits(self) -> bool:
        """Whether anybody of whom the open round has asked a vote is here."""
        return bool(self.asked)

    def tick(self) -> None:
        self._publish(self.rule.tick(self.now_ns))
        if self.lost:
            self.claim_again()
        self.ticked_ns = self.passed_ns
        late_ns = self.passed_ns - self.opened_ns - ROUND_NS
        assert self.were_apart or not self.waits() or late_ns <= TICK_NS, "a round lasts too long"

    def look_at_clock(self) -> None:
        """As the loop does every so often."""
        if by_ns := self.clock.look_again():
            self.rule.on_clock_step(by_ns)

    def pass_time(self, ms: int) -> None:
        self.passed_ns += ms * MS
        if self.clock.is_due:
            self.look_at_clock()
        if self.passed_ns - self.ticked_ns >= TICK_NS:
            self.tick()

    def reads(self, name: str) -> bool:
        """The next entry of a stream; False: there is none."""
        log = self.logs[name]
        if name in self.unmade:
            self.unmade.discard(name)
            self.claim_again()
        while self.again[name]:
            at = self.again[name].pop(0)
            if log.again(GROUP, at) is not None:
                self._answer(name, at)
                return True
        taken = log.take(GROUP)
        if taken is not None:
            self._answer(name, taken)
        return taken is not None

    def _answer(self, name: str, at: int) -> None:
        what, entry = self.logs[name].entries[at], (name, entry_id(at))
        if self.held.get(entry, what) is not what:  # the loop has seen its connection break, and looks first
            self.claim_again()
        if entry in self.held:
            return
        self.held[entry] = what
        self.settle(self._heard(entry, what))
        if self.lost:
            self.claim_again()
        self._persist()

    def _heard(self, entry: Entry, what: bytes) -> Outcome:
        name = entry[0]
        try:
            opened = self.openers[name].open(what, entry[1], self.clock.now_ms())
        except RefusedError as error:
            self.note_refused(reason_name(error.reason), what, number(entry[1]), self.clock)
            outcome = self.rule.on_refused(entry, error, self.now_ns)
            outcome.done.append(entry)
            if isinstance(error, UnsealedError):
                del self.logs[name].entries[number(entry[1])]
            return outcome
        match opened.message:
            case pb.Heartbeat():
                outcome = Outcome()
                if not opened.redelivered:
                    self._outbid(opened.message.lease_token)
                    outcome = self.rule.on_heartbeat(opened.message, self.now_ns)
                outcome.done.append(entry)
                return outcome
            case pb.BarrierVote():
                return self.rule.on_vote(opened.message, entry, self.now_ns)
        return self.rule.on_command(name, opened, self.now_ns)

    def _outbid(self, token: int) -> None:
        if token > self.token:
            self.token = token + 1
            self._announce()
            self._publish(self.rule.on_history_lost((), {}, self.now_ns, again=True))

    # -- what Redis may lose -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        for log in self.logs.values():
            log.lose()
        for name in LOGS:
            self.destroy(name)
        self.asked.clear()
        self.stored.clear()
        self.forget()

    def destroy(self, name: str) -> None:
        """The group of the loop, which makes it again as it reads."""
        self.logs[name].begin_anew(GROUP)
        self.again[name] = []
        self.unmade.add(name)

    def forget(self) -> None:
        """Of all keys that of the loop's windows alone."""
        self.stored.pop(GROUP, None)
        self.lost = "nothing"

    def delete(self, name: str) -> None:
        """One stream alone."""
        self.logs[name].lose()
        if name == "decisions":
            self.asked.clear()
        if name in LOGS:
            self.destroy(name)

    def keep(self) -> None:
        """What a server falls back to that dies later."""
        logs = {name: log.kept() for name, log in self.logs.items()}
        self.kept = logs, dict(self.stored), self.lost

    def fall_back(self) -> None:
        logs, stored, lost = self.kept
        self.stored = dict(stored)
        self.logs, self.lost = {name: log.kept() for name, log in logs.items()}, lost or "older"
        in_hand = {(name, number(at)) for name, at in self.held}
        self.again = {name: [at for at in self.logs[name].left(GROUP) if (name, at) not in in_hand] for name in LOGS}
        self.asked.clear()
