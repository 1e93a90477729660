"""The coordinator's rule at sealed streams: whoever leads reads, decides, dies and is followed."""

from __future__ import annotations

from esper.errors import RefusedError, UnsealedError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.leyline.succession import Decision, Said, Succession, in_force
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from tests.replayed.keys import Keys
from tests.replayed.streams import Streams
from tests.town.log import entry_id, number

GROUP = "coordinator"
COMMANDS = {"commands": Domain.COMMAND, "optimizer": Domain.OPTIMIZER}


class Leader:
    """Answers at once whatever comes."""

    def __init__(self, streams: Streams, keys: Keys, snapshot_every: int) -> None:
        self.streams, self._keys, self._every = streams, keys, snapshot_every
        self.guards = {name: ReplayGuard() for name in COMMANDS}
        self.num_votes = 0
        self.lead()

    def lead(self) -> None:
        """Another process, that knows what is on record."""
        keyring = self._keys.of(Role.COORDINATOR)
        self._sealer = Sealer(keyring, Role.COORDINATOR, GROUP, clock_ns=self.streams.now_ns)
        self._openers = {
            name: Opener(keyring, name=GROUP, guard=self.guards[name], accept=[domain])
            for name, domain in COMMANDS.items()
        }
        self._decisions = Opener(keyring, name=GROUP, guard=None, accept=[Domain.DECISION])
        self.rule, succession = Coordinator(GROUP, snapshot_every=self._every), Succession()
        self.held: set[Entry] = set()
        self._again = {name: list(self.streams.left(name, GROUP)) for name in COMMANDS}
        outcome = self.rule.resume(in_force(self._said(), succession))
        self.rule.on_history_lost((), self._newest(), self._now(), again=False)
        self.token = succession.next_token(self.streams.now_ms())
        self._announce()
        self._publish(outcome)

    def _said(self) -> list[Said]:
        found = []
        for at, sealed in self.streams.logs["decisions"].entries.items():
            try:
                message = self._decisions.open(sealed, entry_id(at), self.streams.now_ms()).message
            except RefusedError:
                continue
            if isinstance(message, Said):
                found.append(message)
        return found

    def _announce(self) -> None:
        said = pb.LeaderAnnouncement(version=1, leader=GROUP, lease_token=self.token)
        self.streams.add("decisions", self._sealer.seal(said))

    def _now(self) -> int:
        return self.streams.now_ns()

    def _newest(self) -> dict[str, str]:
        return {name: self.streams.newest(name) for name in COMMANDS}

    def lost(self) -> None:
        """Redis has lost what was there, all of it or the newest part."""
        gone = {(name, at) for name, at in self.held if number(at) not in self.streams.logs[name].entries}
        self.held -= gone
        in_hand = {(name, number(at)) for name, at in self.held}
        self._again = {
            name: [at for at in self.streams.left(name, GROUP) if (name, at) not in in_hand] for name in COMMANDS
        }
        self._publish(self.rule.on_history_lost(gone, self._newest(), self._now(), again=True))

    def hear(self, said: pb.Heartbeat | pb.BarrierVote) -> None:
        if isinstance(said, pb.BarrierVote):
            self.num_votes += 1
            self._publish(self.rule.on_vote(said, ("votes", f"{self.num_votes}-0"), self._now()))
        else:
            if said.lease_token > self.token:
                self.token = said.lease_token + 1
                self._announce()
                self._publish(self.rule.on_history_lost((), {}, self._now(), again=True))
            self._publish(self.rule.on_heartbeat(said, self._now()))

    def turn(self) -> None:
        """Read what has come, and let time pass."""
        for name in COMMANDS:
            while self.rule.has_room(name) and self._read(name):
                pass
        self._publish(self.rule.tick(self._now()))

    def _read(self, name: str) -> bool:
        log = self.streams.logs[name]
        while self._again[name]:
            at = self._again[name].pop(0)
            if log.again(GROUP, at) is not None:
                self._answer(name, at)
                return True
        taken = log.take(GROUP)
        if taken is not None:
            self._answer(name, taken)
        return taken is not None

    def _answer(self, name: str, at: int) -> None:
        entry, sealed = (name, entry_id(at)), self.streams.logs[name].entries[at]
        self.held.add(entry)
        try:
            opened = self._openers[name].open(sealed, entry[1], self.streams.now_ms())
        except RefusedError as error:
            outcome = self.rule.on_refused(entry, error, self._now())
            outcome.done.append(entry)
            self._publish(outcome)
            if isinstance(error, UnsealedError):
                self.streams.logs[name].entries.pop(at)
            return
        self._publish(self.rule.on_command(name, opened, self._now()))

    def _publish(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            said: Decision = type(decision)()
            said.CopyFrom(decision)  # type: ignore[arg-type]
            said.lease_token = self.token
            self.streams.add("decisions", self._sealer.seal(said))
        for receipt in outcome.receipts:
            self.streams.add("receipts", self._sealer.seal(receipt))
        for name, at in outcome.done:
            self.held.discard((name, at))
            if name in COMMANDS:
                self.streams.logs[name].ack(GROUP, number(at))
