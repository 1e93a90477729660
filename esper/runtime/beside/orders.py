"""Commits matched with the commands that they name."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from esper.bus.group.delivery import Delivery
from esper.errors import EvictedError, RefusedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.entries import entry_order
from esper.leyline.seal import Opened
from esper.leyline.succession import Decision as Decision, Said, Succession

MOST_REFUSED = 4_096
"""Of each reason, so that a flood of junk never pushes out what a holder of the key has sealed."""
MOST_HELD = 1_000
"""Commands of one log; further ones stay in Redis, unless a commit waits for one of them."""

EntryId = tuple[int, int]
Step = tuple[list[pb.ToTrainer], list[Delivery]]  # what the trainer must hear, what is settled by that


@dataclass(frozen=True)
class _Command:
    opened: Opened
    delivery: Delivery | None  # None: looked up, and not handed over


@dataclass
class Orders:
    """One rank's view of the logs: holds commands until a commit names or passes them, commits until those are here.

    Decisions reach the trainer in the order of their stream: what follows a commit that waits, waits behind it.
    Rounds proposed up to `past` were voted for by an earlier trainer of this name, if at all, and bind this one to
    nothing. A replica that has not joined yet is asked for no vote, and carries out what the others decide. Knows
    neither Redis nor the trainer. Raises TrainingError where this rank would judge otherwise than a commit says.
    """

    past: EntryId = (0, 0)
    worker: str = ""
    past_is_known: bool = False
    """From now on what is past shows by its leader and its round too: a log that begins anew may count from below."""
    incarnation: int = 0
    """Of the trainer, as it says of itself."""
    round_applied: int = 0
    """The newest round that the trainer says to have carried out: told again, it answers it from memory."""
    _commands: dict[str, dict[EntryId, _Command]] = field(default_factory=lambda: {"commands": {}, "optimizer": {}})
    _waiting: deque[tuple[Decision, Delivery]] = field(default_factory=deque)
    _to_ack: dict[int, list[Delivery]] = field(default_factory=dict)
    _proposals: dict[int, Delivery] = field(default_factory=dict)
    _refused: dict[int, dict[tuple[str, EntryId], str]] = field(default_factory=dict)
    _gone: set[tuple[str, EntryId]] = field(default_factory=set)  # of what is awaited
    _unasked: set[int] = field(default_factory=set)
    _inherited: set[int] = field(default_factory=set)
    _decided: int = 0
    _past_round: int = 0
    _past_token: int = 0
    _past_roster: tuple[str, ...] = ()
    _past_decided: int = 0
    _generation: int = 0
    _round_met: int = 0
    _succession: Succession = field(default_factory=Succession)
    _leaders: deque[tuple[EntryId, pb.LeaderAnnouncement]] = field(default_factory=deque)

    def on_command(self, log: str, opened: Opened, delivery: Delivery) -> Step:
        """Hold a command; return the decisions that waited for it."""
        self._commands[log][entry_order(delivery.entry_id)] = _Command(opened, delivery)
        return self._complete()

    def on_found(self, log: str, opened: Opened) -> Step:
        """The same of one that was looked up, as it is awaited: it will not be handed over, or has not been yet."""
        self._commands[log].setdefault(entry_order(opened.entry_id), _Command(opened, None))
        return self._complete()

    def on_refused(self, log: str, delivery: Delivery, error: RefusedError) -> Step:
        """Remember that this rank would not carry out an entry. TrainingError: a commit that waits for it names it."""
        alike = self._refused.setdefault(error.reason, {})
        alike[log, entry_order(delivery.entry_id)] = error.detail
        while len(alike) > MOST_REFUSED:
            alike.pop(next(iter(alike)))
        return self._complete()

    def has_room(self, log: str) -> bool:
        """Whether more of this log may be read.

        Always while a commit waits for one of its entries, which may lie behind commands that only the coordinator has
        refused.
        """
        return len(self._commands.get(log, ())) < MOST_HELD or any(ref.stream == log for ref in self.awaited())

    def awaited(self) -> list[pb.CommittedCommand]:
        """Entries that the oldest decision waits for."""
        match self._waiting[0][0] if self._waiting else None:
            case pb.BarrierCommit() as commit:
                return [ref for ref in commit.commands if not self._holds(ref)]
        return []

    def on_missing(self, ref: pb.CommittedCommand) -> Step:
        """An entry is on its log no more. TrainingError where a commit waits for it that is yet to be carried out."""
        if ref in self.awaited():
            self._gone.add((ref.stream, entry_order(ref.entry_id)))
            if (number := self._waiting[0][0].round) > self.round_applied:
                entry = f"entry {ref.entry_id} of :{ref.stream}"
                raise TrainingError(f"round {number} names {entry}, which is not on that log")
        return self._complete()

    def is_past(self, decision: Decision, delivery: Delivery) -> bool:
        """Whether this was said before this trainer began, or is about a round that was proposed to one before it.

        By the same leader: whoever follows it aborts that round, and may count anew where Redis lost its history.
        """
        self._hear_of_leaders(delivery)
        said = decision.lease_token, decision.round
        is_newer = self.past_is_known and said > (self._past_token, self._past_round)
        if is_newer or entry_order(delivery.entry_id) > self.past:
            return decision.round <= self._past_round and decision.lease_token == self._past_token
        if not self._succession.holds(decision):
            return True
        if self._leaves_out(decision):
            self._unasked.add(decision.round)
            return True
        if isinstance(decision, pb.BarrierProposal):
            self._past_roster = tuple(decision.roster)
        else:
            self._unasked.discard(decision.round)
            self._past_decided = decision.round
        self._past_round, self._past_token = max(self._past_round, decision.round), decision.lease_token
        return True

    def is_unanswered(self, commit: pb.BarrierCommit, delivery: Delivery) -> bool:
        """Whether a trainer before this one was told of a commit that is past, or voted for it, and has not answered.

        Decided after this one began it is told to none; of a round that is decided twice the second time is void.
        """
        if entry_order(delivery.entry_id) <= self.past:
            return delivery.attempts > 1 or commit.round in self._proposals
        if commit.lease_token < self._succession.token or commit.roster_generation < self._generation:
            return False  # void: what it names is decided anew, and answered with that
        is_first, self._past_decided = commit.round > self._past_decided, max(commit.round, self._past_decided)
        return is_first

    def pass_over(self, decision: Decision, delivery: Delivery) -> list[Delivery]:
        """What one that is past settles: a proposal that an earlier trainer was told of stays until it is decided."""
        if isinstance(decision, pb.BarrierProposal) and delivery.attempts > 1 and self.was_asked(decision.round):
            self._proposals[decision.round] = delivery
            return []
        asked = self._proposals.pop(decision.round, None)
        return [delivery] if asked is None else [delivery, asked]

    def inherit(self, commit: pb.BarrierCommit, delivery: Delivery) -> bool:
        """Have this carried out for the trainer before, which voted on it, if others go on by it; whether they do.

        To be asked of a replica that resumes: its last checkpoint lies before that vote. What was decided before it
        began it recalls by itself.
        """
        is_open = commit.round == self._past_round and len(self._past_roster) > 1
        if is_open and entry_order(delivery.entry_id) > self.past:
            self._inherited.add(commit.round)
        return commit.round in self._inherited

    def on_proposal(self, proposal: pb.BarrierProposal, delivery: Delivery) -> Step:
        """Return what the trainer must hear, and what can be acknowledged at once."""
        if self._is_void(proposal, delivery):
            return [], [delivery]
        self._proposals[proposal.round] = delivery
        if self._leaves_out(proposal):
            self._unasked.add(proposal.round)
            return [], []
        return self._in_turn(proposal, delivery)

    def on_commit(self, commit: pb.BarrierCommit, delivery: Delivery) -> Step:
        """The first decision of a round counts; its order goes out once every command it names is here."""
        is_met = delivery.attempts == 1 and commit.round <= self.round_applied  # said once more: Redis lost its history
        if self._is_void(commit, delivery) or is_met:
            return [], [delivery]
        self._decided = commit.round
        if barrier_digest(commit.effective_step, commit.commands, commit.requests) != commit.digest:
            raise TrainingError(f"the digest of round {commit.round} does not cover the commands that it names")
        if self.worker in commit.quarantined:
            raise TrainingError(
                f"round {commit.round}: {self.worker} is quarantined, as its replica is not that of most"
            )
        return self._in_turn(commit, delivery)

    def on_announcement(self, announcement: pb.LeaderAnnouncement, delivery: Delivery) -> Step:
        """From here on nothing counts that an earlier leader says."""
        self._hear_of_leaders(delivery)
        self.follow(announcement)
        return [], [delivery]

    def follow(self, said: Said) -> None:
        """Note who led when this was said, and nothing else of it."""
        self._succession.holds(said)

    def leads(self, announcement: pb.LeaderAnnouncement, at: EntryId) -> None:
        """Note who leads from an entry on that was acknowledged by an earlier runtime; in their order."""
        self._leaders.append((at, announcement))

    def on_abort(self, abort: pb.BarrierAbort, delivery: Delivery) -> Step:
        """An abort frees the trainer of its promise and is done with. EvictedError: it ends this process too."""
        if self._is_void(abort, delivery):
            return [], [delivery]
        self._decided = abort.round
        self._unasked.discard(abort.round)
        ended = {(each.worker, each.incarnation or self.incarnation) for each in abort.evicted}
        if (self.worker, self.incarnation) in ended:
            raise EvictedError(f"round {abort.round}: {abort.detail}")
        return self._in_turn(abort, delivery)

    @property
    def newest_met(self) -> tuple[int, int, int]:
        """The highest token of a leader, roster generation and round of all that was read, or that the trainer met."""
        return self._succession.token, self._generation, self._round_met

    def stamp(self, heartbeat: pb.Heartbeat) -> None:
        """Note what the trainer says of itself; have its heartbeat say what was met of decisions."""
        self.incarnation, self.round_applied = heartbeat.incarnation, heartbeat.round_applied
        self._round_met = max(self._round_met, heartbeat.round_met)  # by the runtime before this one, too
        heartbeat.lease_token, heartbeat.roster_generation, heartbeat.round_met = self.newest_met

    @property
    def num_waiting(self) -> int:
        """Decisions that wait for a command that one of them names."""
        return len(self._waiting)

    def hold(self, number: int, delivery: Delivery) -> None:
        """Have this settled with the round, which the trainer will carry out for another reason than this entry."""
        self._to_ack.setdefault(number, []).append(delivery)

    def oldest_ms(self, default: int) -> int:
        """Stream time of the oldest entry that is held here, not yet acknowledged."""
        held = [at for commands in self._commands.values() for at in commands]
        waiting = [*self._proposals.values(), *(each for _, each in self._waiting)]
        unsettled = [each for round_ in self._to_ack.values() for each in round_]
        held += [entry_order(delivery.entry_id) for delivery in (*waiting, *unsettled)]
        return min(held, default=(default, 0))[0]

    def was_asked(self, number: int) -> bool:
        """Whether a vote on this round was asked of this worker, and so a receipt for what it names."""
        return number not in self._unasked

    def on_applied(self, applied: pb.RoundApplied) -> list[Delivery]:
        """What the round has settled: its decision, and every command that it named or passed over."""
        self._unasked.discard(applied.round)
        return self._to_ack.pop(applied.round, [])

    def _is_void(self, decision: Decision, delivery: Delivery) -> bool:
        """Whether its round is decided, its roster is not the newest, or it was said by a leader that was replaced."""
        self._hear_of_leaders(delivery)
        if not self._succession.holds(decision):
            return True
        self._generation = max(self._generation, decision.roster_generation)
        self._round_met = max(self._round_met, decision.round)
        return decision.round <= self._decided or decision.roster_generation < self._generation

    def _hear_of_leaders(self, delivery: Delivery) -> None:
        while self._leaders and self._leaders[0][0] < entry_order(delivery.entry_id):
            self.follow(self._leaders.popleft()[1])

    def _leaves_out(self, decision: Decision) -> bool:
        return isinstance(decision, pb.BarrierProposal) and bool(self.worker) and self.worker not in decision.roster

    def _in_turn(self, decision: Decision, delivery: Delivery) -> Step:
        self._waiting.append((decision, delivery))
        return self._complete()

    def _complete(self) -> Step:
        said: list[pb.ToTrainer] = []
        settled: list[Delivery] = []
        while self._waiting and (message := self._message(*self._waiting[0])) is not None:
            decision, delivery = self._waiting.popleft()
            self._gone.clear()
            said.append(message)
            match decision:
                case pb.BarrierCommit():
                    ended = [delivery, *self._proposals_through(decision.round), *self._judged(decision)]
                    self._to_ack[decision.round] = ended
                case pb.BarrierAbort():
                    settled += [delivery, *self._proposals_through(decision.round)]
        return said, settled

    def _message(self, decision: Decision, delivery: Delivery) -> pb.ToTrainer | None:
        """None: a commit that still waits for a command that it names."""
        match decision:
            case pb.BarrierProposal():
                return pb.ToTrainer(proposal=decision)
            case pb.BarrierAbort():
                return pb.ToTrainer(abort=decision)
            case pb.BarrierCommit():
                order = self._order(decision, delivery)
                if order is not None and decision.round in self._inherited:
                    return pb.ToTrainer(recalled=pb.Recalled(orders=[order]))
                return None if order is None else pb.ToTrainer(commit=order)

    def _order(self, commit: pb.BarrierCommit, delivery: Delivery) -> pb.CommitOrder | None:
        unasked = not self.was_asked(commit.round)
        order = pb.CommitOrder(commit=commit, entry_id=delivery.entry_id, unasked=unasked)
        for ref in commit.commands:
            held = self._commands[ref.stream].get(entry_order(ref.entry_id))
            if held is None and commit.round <= self.round_applied and self._is_gone(ref):
                continue  # it was carried out, and acknowledged
            if held is None:
                self._check_not_refused(commit, ref)
                return None
            if held.opened.digest != ref.envelope_digest:
                raise TrainingError(f"round {commit.round} names other bytes for entry {ref.entry_id} of :{ref.stream}")
            order.commands.append(_with_body(ref, held.opened))
        return order

    def _holds(self, ref: pb.CommittedCommand) -> bool:
        return entry_order(ref.entry_id) in self._commands[ref.stream]

    def _is_gone(self, ref: pb.CommittedCommand) -> bool:
        at = ref.stream, entry_order(ref.entry_id)
        return at in self._gone or any(at in alike for alike in self._refused.values())

    def _check_not_refused(self, commit: pb.BarrierCommit, ref: pb.CommittedCommand) -> None:
        at = ref.stream, entry_order(ref.entry_id)
        for why in [alike[at] for alike in self._refused.values() if at in alike]:
            entry = f"entry {ref.entry_id} of :{ref.stream}"
            raise TrainingError(f"round {commit.round} names {entry}, refused here: {why}")

    def _judged(self, commit: pb.BarrierCommit) -> list[Delivery]:
        named = {(ref.stream, entry_order(ref.entry_id)) for ref in commit.commands}
        positions = {"commands": commit.commands_position, "optimizer": commit.optimizer_position}
        done = []
        for log, position in positions.items():
            held = self._commands[log]
            for at in [at for at in held if at <= entry_order(position) or (log, at) in named]:
                if (delivery := held.pop(at).delivery) is not None:
                    done.append(delivery)
        return done

    def _proposals_through(self, number: int) -> list[Delivery]:
        return [self._proposals.pop(old) for old in sorted(self._proposals) if old <= number]


def _with_body(ref: pb.CommittedCommand, opened: Opened) -> pb.OpenedCommand:
    match opened.message:
        case pb.AdaptationCommand() as adaptation:
            return pb.OpenedCommand(ref=ref, adaptation=adaptation)
        case pb.OptimizerCommand() as optimizer:
            return pb.OpenedCommand(ref=ref, optimizer=optimizer)
        case other:
            raise TrainingError(f"entry {ref.entry_id} of :{ref.stream} holds a {type(other).__name__}, not a command")
