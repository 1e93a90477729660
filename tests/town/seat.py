"""The coordinator's rule at its streams: whoever leads reads, settles, dies and is followed."""

from __future__ import annotations

from collections import Counter
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
STREAMS = (*LOGS, "decisions")
GROUP = "coordinator"
OLD = RefusedError(pb.ReasonCode.REASON_STALE, "it is older than a minute")


class Seat:
    """Who leads, as its desk sees it. AssertionError: it does what no order of arrival may make it do."""

    def __init__(self) -> None:
        self.passed_ns = 0  # since the town began, whatever clocks say
        self.set_ns = self.seen_ns = 1_700_000_000 * S  # what the server's clock is ahead of that, and is seen to be
        self.logs: dict[str, Log[Any]] = {name: Log() for name in STREAMS}
        self.answers: Counter[str] = Counter()
        self.asked: dict[int, tuple[str, ...]] = {}  # of the open round, if one is
        self.opened_ns = self.ticked_ns = self.num_rounds = 0
        self.met: set[int] = set()
        self.stored_met: set[int] = set()
        self.began: dict[str, int] = {}  # the newest decision when each trainer began
        self.lost = ""  # what Redis still holds of the desk's windows, where it is not whole

    @property
    def now_ns(self) -> int:
        """By the server's clock, as the desk knows it."""
        return self.passed_ns + self.seen_ns

    def add(self, log: str, what: object) -> int:
        self.passed_ns += 1000  # no two entries are of the same moment
        clock = (self.passed_ns + self.set_ns) // 1000 * len(STREAMS) + STREAMS.index(log)
        return self.logs[log].add(what, clock, len(STREAMS))

    def lead(self) -> None:
        """A new process leads, and knows what is on record."""
        self.seen_ns, self.lost, self.unmade = self.set_ns, "", set[str]()
        self.rule, succession = Coordinator(GROUP), Succession()
        self.held: dict[Entry, object] = {}  # what it was when it was read
        self.met = set(self.stored_met)
        self.again = {name: list(self.logs[name].left(GROUP)) for name in LOGS}
        said: list[Said] = list(self.logs["decisions"].entries.values())
        outcome = self.rule.resume(in_force(said, succession))
        self.rule.on_history_lost((), self._newest(), self.now_ns, again=False)
        self.token = succession.next_token(self.now_ns // MS)
        self._announce()
        self.settle(outcome)

    def _announce(self) -> None:
        self.add("decisions", pb.LeaderAnnouncement(version=1, leader=GROUP, lease_token=self.token))

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
        self.stored_met = set(self.met)
        self._publish(self.rule.on_history_lost(gone, self._newest(), self.now_ns, again=bool(found)))

    def _there(self, entry: Entry) -> object:
        """What has this number now: another entry, where the log fell back and went on by a clock behind."""
        return self.logs[entry[0]].entries.get(_number(entry[1]))

    def _newest(self) -> dict[str, str]:
        return {name: f"{max(self.logs[name].entries, default=0)}-0" for name in ("commands", "optimizer")}

    def _publish(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            said = type(decision)()
            said.CopyFrom(decision)  # type: ignore[arg-type]
            said.lease_token = self.token
            self.add("decisions", said)
            self._note(said)
        self.answers.update(receipt.command_id for receipt in outcome.receipts if receipt.command_id)
        for name, entry_id in outcome.done:
            assert (name, entry_id) in self.held, f"an entry of :{name} is done with twice"
            del self.held[name, entry_id]
            self.logs[name].ack(GROUP, _number(entry_id))

    def _note(self, said: Decision) -> None:
        if not isinstance(said, pb.BarrierProposal):
            self.asked.pop(said.round, None)
            return
        assert not self.waits(), "a round is proposed, and somebody waits for another"
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
        assert not self.waits() or late_ns <= TICK_NS, "a round lasts too long"

    def look_at_clock(self) -> None:
        """As the desk does every so often."""
        by_ns, self.seen_ns = self.set_ns - self.seen_ns, self.set_ns
        if by_ns:
            self.rule.on_clock_step(by_ns)

    def pass_time(self, ms: int) -> None:
        self.passed_ns += ms * MS
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
        what, entry = self.logs[name].entries[at], (name, f"{at}-0")
        if self.held.get(entry, what) is not what:  # the desk has seen its connection break, and looks first
            self.claim_again()
        self.held[entry] = what
        match what:
            case pb.Heartbeat():
                outcome = Outcome()
                if at not in self.met:
                    self._outbid(what.lease_token)
                    outcome = self.rule.on_heartbeat(what, self.now_ns)
                outcome.done.append(entry)
                self.met.add(at)
            case pb.BarrierVote():
                outcome = self.rule.on_vote(what, entry, self.now_ns)
            case Opened():
                outcome = self.rule.on_command(name, what._replace(redelivered=at in self.met), self.now_ns)
                self.met.add(at)
            case _:
                outcome = self.rule.on_refused(entry, OLD, self.now_ns)
                outcome.done.append(entry)
        self.settle(outcome)
        if isinstance(what, Opened | pb.Heartbeat):
            self._settle_what_was_met()

    def _outbid(self, token: int) -> None:
        if token > self.token:
            self.token = token + 1
            self._announce()
            self._publish(self.rule.on_history_lost((), {}, self.now_ns, again=True))

    def _settle_what_was_met(self) -> None:
        if self.lost:
            self.claim_again()
        self.stored_met = set(self.met)

    # -- what Redis may lose -----------------------------------------------------------------------------------------

    def flush(self) -> None:
        for log in self.logs.values():
            log.lose()
        for name in LOGS:
            self.destroy(name)
        self.began.clear()
        self.asked.clear()
        self.forget()

    def destroy(self, name: str) -> None:
        """The group of the desk, which makes it again as it reads."""
        self.logs[name].begin_anew(GROUP)
        self.again[name] = []
        self.unmade.add(name)

    def forget(self) -> None:
        """Of all keys that of the desk's windows alone."""
        self.stored_met, self.lost = set(), "nothing"

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
        self.kept = logs, dict(self.began), set(self.stored_met), self.lost

    def fall_back(self) -> None:
        logs, began, met, lost = self.kept
        self.began, self.stored_met = dict(began), set(met)
        self.logs, self.lost = {name: log.kept() for name, log in logs.items()}, lost or "older"
        in_hand = {(name, _number(at)) for name, at in self.held}
        self.again = {name: [at for at in self.logs[name].left(GROUP) if (name, at) not in in_hand] for name in LOGS}
        self.asked.clear()


def _number(entry_id: str) -> int:
    return int(entry_id.partition("-")[0])
