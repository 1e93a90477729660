"""Joins barrier and judge: opens a round when one is due, and turns the votes on it into one decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.leyline.succession import LAST_GENERATION, Decision, above
from esper.tamiyo.barrier import Barrier, Released, as_settled, of_replicas, to_quarantine
from esper.tamiyo.command_queue import CommandQueue, entries_of
from esper.tamiyo.judge import Judge, Waiting
from esper.tamiyo.newest_decisions import NewestDecisions
from esper.tamiyo.nonvoters import MUTE_ROUNDS, NonVoters
from esper.tamiyo.outcome import Entry, Outcome, refuse
from esper.tamiyo.overdue import SILENCE_NS, overdue
from esper.tamiyo.roster import Roster
from esper.tamiyo.verdicts import commit_of, judged, receipt_of, refusal_of, taken_over
from esper.tamiyo.world import World

ROUNDS_UNSEEN = 1_000
"""Rounds that may have been decided since the newest one that a rank has met: all of them aborted ones."""


class Coordinator:
    """One open round at a time, over one roster. Knows nothing of Redis, of seals or of tasks; time is an argument.

    Commands and counted votes are done only with the decision that judges them, so whoever takes over after a crash
    meets them again.
    """

    def __init__(
        self,
        name: str,
        *,
        snapshot_every: int = 1000,
        quarantine_from: int = 100,
        silence_ns: int = SILENCE_NS,
        mute_rounds: int = MUTE_ROUNDS,
    ) -> None:
        """`quarantine_from`: the first epoch in which a rank that a majority calls different is sent away.

        `silence_ns`: since the last heartbeat of one rank of a process group; then all of them are to begin anew. Of
        replicas only the silent one. `mute_rounds`: the same of one that votes in none of so many, though it is heard.
        """
        self.name = name
        self.barrier: Barrier | None = None
        self._snapshot_every, self._quarantine_from = snapshot_every, quarantine_from
        self._roster, self._silence_ns, self._nonvoters = Roster(), silence_ns, NonVoters(mute_rounds)
        self._must_form = self._is_void = False
        self._on_record = 0, 0
        self._commands, self._newest_decisions = CommandQueue(), NewestDecisions()
        self._votes: list[Entry] = []
        self._due_step: int | None = None
        self._effective_step = self._committed_round = self._next_snapshot = 0
        self._must_be_applied = self._was_applied = False
        self._carried: World | None = None

    def resume(self, decisions: Iterable[Decision]) -> Outcome:
        """Go on from the newest decisions of the stream, in its order. A round found open is aborted."""
        for decision in decisions:
            self._on_record = decision.roster_generation, decision.round
            if isinstance(decision, pb.BarrierProposal):
                self.barrier = Barrier(decision.roster, decision.roster_generation)
                self.barrier.reopen(decision)
                self._roster.expect(decision.roster, decision.incarnations)
                self._must_form = False
                continue
            self._newest_decisions.note(decision)
            if self.barrier is not None and self.barrier.is_open and self.barrier.round == decision.round:
                self.barrier.is_open = False
                if isinstance(decision, pb.BarrierCommit):
                    self._note_commit(decision)
            if isinstance(decision, pb.BarrierAbort) and decision.evicted:
                self._roster.let_go(decision.evicted)
                self._must_form = True
        # Judging needs the outcome of that commit, which this process did not see: let all ranks come past it.
        self._must_be_applied = True
        outcome = Outcome()
        if self.barrier is not None and self.barrier.is_open:
            self._abort(pb.ReasonCode.REASON_ROSTER_CHANGED, "the coordinator was started anew", outcome)
        return outcome

    def on_heartbeat(self, heartbeat: pb.Heartbeat, now_ns: int) -> Outcome:
        """Note that a rank lives; a rank that is another process than before makes another roster."""
        outcome = Outcome()
        self._must_form |= self._roster.hear(heartbeat, now_ns)
        self._form_if_due(now_ns, outcome)
        if heartbeat.barrier_due and (heartbeat.step > self._effective_step or self._stands_behind(heartbeat)):
            self._due_step = heartbeat.step
        return outcome

    def _stands_behind(self, heartbeat: pb.Heartbeat) -> bool:
        """Whether a paused rank has carried out the last commit: it comes to no later step before it asks."""
        paused = heartbeat.busy == pb.BusyWith.BUSY_PAUSED
        return paused and heartbeat.round_applied >= self._committed_round

    def on_vote(self, vote: pb.BarrierVote, entry: Entry, now_ns: int) -> Outcome:
        """Count a vote; the last one awaited decides the round."""
        if vote.requests:
            self._due_step = max(self._due_step or 0, vote.step)
        if self.barrier is None:
            return Outcome(done=[entry])
        if entry in self._votes:
            return Outcome()  # handed over again, as where its group began anew: done with once, with its round
        num_counted = self.barrier.num_counted
        released = self.barrier.arrive(vote, now_ns)
        if self.barrier.num_counted == num_counted:
            return Outcome(done=[entry])
        self._votes.append(entry)
        self._nonvoters.voted(vote.worker)
        return Outcome() if released is None else self._commit(released, now_ns)

    def on_command(self, stream: str, opened: Opened, now_ns: int = 0) -> Outcome:
        """Keep a command for the next round. A redelivery changes nothing, also where its group began anew.

        Of one that lies before what is judged, ranks have let go: was it never met, or is that forgotten, it is refused
        by name. Logs are read in order, whoever read them before.
        """
        message = opened.message
        assert isinstance(message, pb.AdaptationCommand | pb.OptimizerCommand)
        waiting = Waiting(stream, opened.entry_id, message, opened.header, opened.digest)
        if not self._commands.is_judged(stream, opened.entry_id):
            self._commands.add(waiting)
            return Outcome()
        overtaken = RefusedError(pb.ReasonCode.REASON_CANCELLED, "later commands were judged before it")
        receipts = [] if opened.redelivered else [self._refusal(waiting, overtaken, now_ns)]
        return Outcome(receipts=receipts, done=entries_of([waiting]))

    def on_refused(self, entry: Entry, error: RefusedError, now_ns: int) -> Outcome:
        """Answer an envelope that could not be opened: its body is not to be believed, so only its entry is named."""
        if entry[0] not in self._commands.positions:
            return Outcome()
        self.pass_over(entry)
        receipt = receipt_of(self.name, entry[1], pb.ReceiptStatus.RECEIPT_REJECTED, now_ns)
        refuse(receipt, error)
        return Outcome(receipts=[receipt])

    def pass_over(self, entry: Entry) -> None:
        """Note an entry that no round will name, so that the next commit lets go of it wherever it is held."""
        self._commands.pass_over(entry)

    def has_room(self, stream: str) -> bool:
        """Whether more of this stream may be taken in: commands wait here for as long as no round judges them."""
        return self._commands.has_room(stream)

    def on_history_lost(self, gone: Collection[Entry], newest: Mapping[str, str], now_ns: int, again: bool) -> Outcome:
        """Redis has lost these entries, and, if `again`, what was decided: say that once more. The open round ends.

        A command among them is refused by name: a rank that has not read it never will. `newest`: the last entry that
        each log still has. What was judged up to there comes again, and is not judged again; what is added, is.
        """
        outcome = Outcome()
        self._commands.fall_back(newest)
        self._votes = [entry for entry in self._votes if entry not in gone]
        lost = RefusedError(pb.ReasonCode.REASON_CANCELLED, "lost with the history of Redis")
        outcome.receipts += [self._refusal(waiting, lost, now_ns) for waiting in self._commands.lose(gone)]
        outcome.decisions += self._newest_decisions.again(self._roster, self.barrier) if again else []
        if self.barrier is not None and self.barrier.is_open:
            self._abort(pb.ReasonCode.REASON_ROSTER_CHANGED, "Redis lost its history", outcome)
        return outcome

    def on_deaf(self, now_ns: int) -> None:
        """Nothing could be heard for a while, for a reason that is not with the ranks: none is given up for it."""
        self._roster.excuse(now_ns)

    def on_clock_step(self, by_ns: int) -> None:
        """The clock was set: as much time has passed since anything as had before."""
        self._roster.shift(by_ns)
        if self.barrier is not None:
            self.barrier.proposed_ns += by_ns

    def tick(self, now_ns: int) -> Outcome:
        """End a round that can't be completed, open one that is due, answer what can't be carried out any more."""
        outcome = Outcome()
        self._evict(now_ns, outcome)
        self._expire(now_ns, outcome)
        self._form_if_due(now_ns, outcome)
        if self._roster.is_over:
            self._dismiss(now_ns, outcome)
        elif self._may_propose():
            assert self.barrier is not None
            self._was_applied = self._last_shows()
            outcome.decisions.append(self._proposal(self.barrier, now_ns))
        return outcome

    def _proposal(self, barrier: Barrier, now_ns: int) -> pb.BarrierProposal:
        """Open the next round, and say which processes are asked."""
        proposal = barrier.propose(now_ns)
        proposal.incarnations.extend(self._roster.incarnations_of(barrier.roster))
        return proposal

    @property
    def _is_behind(self) -> bool:
        """Whether ranks know of rounds or rosters that are not on record: Redis has lost some, if not all."""
        barrier, roster = self.barrier, self._roster
        if barrier is None or self._is_void:
            return True
        return roster.newest_met > barrier.round or roster.newest_generation > barrier.generation

    def _may_propose(self) -> bool:
        due = bool(self._commands) or self._due_step is not None
        idle = self.barrier is not None and not self.barrier.is_open
        return due and idle and self._roster.is_complete and (not self._must_be_applied or self._last_shows())

    def _last_shows(self) -> bool:
        return self._roster.has_come_past(self._committed_round, self._effective_step)

    def _form_if_due(self, now_ns: int, outcome: Outcome) -> None:
        """A process in another's place makes another roster at once; replicas that come or go, between two rounds.

        None joins a run that is paused: there would be no step that it and those who wait could agree on.
        """
        roster, barrier = self._roster, self.barrier
        must = self._must_form or self._is_behind
        waits = not roster.is_group and (barrier is None or barrier.is_open or roster.is_paused)
        differs = barrier is None or barrier.roster != roster.names
        if not (roster.is_group or differs or waits):  # one that came and left while the others decided
            outcome.left += roster.settle()
        if roster.is_complete and (must or (differs and not waits)):
            self._form(now_ns, outcome)

    def _form(self, now_ns: int, outcome: Outcome) -> None:
        """Announce a roster by its generation.

        What was carried over is void where the new process knows nothing of it: not where other replicas go on.

        Where less is on record than ranks know of, Redis has lost it: both numbers then begin above any that a rank may
        have met, the generation by the clock, which may have been set back.
        """
        old, is_behind = self.barrier, self._is_behind
        if old is not None and old.is_open:
            self._abort(
                pb.ReasonCode.REASON_ROSTER_CHANGED, f"the roster is now {', '.join(self._roster.names)}", outcome
            )
        generation, number = self._on_record if old is None else (old.generation, old.round)
        if is_behind and (self._roster.is_under_way or self._is_void):
            generation = max(generation, now_ns // 1_000_000_000, self._roster.newest_generation)
            number = max(number, self._roster.newest_met) + ROUNDS_UNSEEN
        self.barrier = Barrier(self._roster.names, above("roster_generation", generation, LAST_GENERATION), number)
        self._must_form = self._is_void = False
        self._nonvoters.begin_anew()
        outcome.left += self._roster.settle()
        others_go_on = not (self._roster.is_group or self._roster.is_anew)
        if old is not None and not others_go_on:
            self._effective_step = self._committed_round = 0
            self._newest_decisions.void_commit()
            self._must_be_applied, self._carried = False, None
            self._due_step, self._next_snapshot = None, 0

    def _evict(self, now_ns: int, outcome: Outcome) -> None:
        """By a round that decides it. No rank of a process group can be dropped alone: where one hangs, all end."""
        if self.barrier is None:
            return
        hung = self._roster.hung(self._silence_ns, now_ns)
        lingering = [] if hung or self.barrier.is_open else self._roster.lingering.due()
        if (hung or lingering) and not self.barrier.is_open:
            outcome.decisions.append(self._proposal(self.barrier, now_ns))
        if hung:
            self._give_up(hung, f"said nothing for {self._silence_ns / 1e9:g} s", outcome)
        elif lingering:  # their runtimes may have made their groups again, which hold back what is trimmed
            outcome.evicted_alone += [each.worker for each in lingering if each.worker not in self._roster.names]
            self._abort(pb.ReasonCode.REASON_TIMEOUT, "evicted before, and heard of since", outcome, lingering)

    def _give_up(self, workers: Sequence[str], why: str, outcome: Outcome) -> None:
        """By the open round."""
        self._must_form = True
        fate = "the process group ends, to begin anew from the newest common checkpoint"
        if not self._roster.is_group:
            outcome.evicted_alone += workers
            fate = "evicted alone, to join again from its newest checkpoint"
        detail = f"{', '.join(workers)} {why}: {fate}"
        self._abort(pb.ReasonCode.REASON_TIMEOUT, detail, outcome, self._roster.evict(workers))

    def _expire(self, now_ns: int, outcome: Outcome) -> None:
        barrier = self.barrier
        if barrier is None or not barrier.is_open:
            return
        if {member.worker for member in self._roster.departed}.issuperset(barrier.roster):
            self._abort(pb.ReasonCode.REASON_ROSTER_CHANGED, "everyone that was asked has left", outcome)
        elif (why := overdue(barrier, self._roster, now_ns)) is not None:
            self._is_void = why.unheeded
            if who := self._nonvoters.over(barrier, self._roster):
                self._give_up(who, f"voted in none of {self._nonvoters.most} rounds, though it was heard", outcome)
            else:
                self._abort(why.reason, why.detail, outcome)

    def _abort(
        self, reason: pb.ReasonCode, detail: str, outcome: Outcome, evicted: Sequence[pb.EvictedProcess] = ()
    ) -> None:
        assert self.barrier is not None
        abort = self.barrier.abort(reason, detail, evicted)
        self._newest_decisions.note(abort)
        outcome.decisions.append(abort)
        outcome.done += self._take_votes()

    def _dismiss(self, now_ns: int, outcome: Outcome) -> None:
        last = self._roster.departed[0]
        detail = f"the run is over: {last.worker} left it before step {last.heartbeat.step}"
        over = RefusedError(pb.ReasonCode.REASON_PAST_DEADLINE, detail)
        dismissed = self._commands.dismiss()
        outcome.receipts += [self._refusal(waiting, over, now_ns) for waiting in dismissed]
        outcome.done += entries_of(dismissed)

    def _commit(self, released: Released, now_ns: int) -> Outcome:
        outcome, alike = Outcome(done=self._take_votes()), self._roster.is_group
        if not alike:
            released = of_replicas(released, self._effective_step)
        carried = None if self._sees_last_commit(released.votes) else self._carried
        judge = Judge(
            (World.of if carried is None else carried.met_again)(released.votes, alike=alike),
            self._roster.catalogue(),
            released.effective_step,
            released.epoch,
            now_ns,
        )
        commands, self._must_be_applied = judged(self._commands.turns(), judge, released, self.name, outcome)
        self._commands.pass_refused()
        if carried is not None:  # one rank may have changed its weights just before its vote, another just after it
            released = as_settled(released)
        commit = commit_of(released, commands, taken_over(released.votes, judge), self._commands.positions)
        commit.snapshot = released.effective_step >= self._next_snapshot
        commit.quarantined.extend(to_quarantine(released, self._quarantine_from))
        self._note_commit(commit)
        self._newest_decisions.note(commit)
        self._roster.decided()
        self._carried = judge.world
        outcome.decisions.append(commit)
        return outcome

    def _sees_last_commit(self, votes: tuple[pb.BarrierVote, ...]) -> bool:
        """Whether the votes judged by were given after the last commit took effect. At its very step either may be."""
        telling = min if self._roster.is_group else max
        return self._was_applied or telling(vote.step for vote in votes) > self._effective_step

    def _refusal(self, waiting: Waiting, error: RefusedError, now_ns: int) -> pb.CommandReceipt:
        return refusal_of(self.name, waiting, error, now_ns)

    def _note_commit(self, commit: pb.BarrierCommit) -> None:
        self._effective_step, self._committed_round = commit.effective_step, commit.round
        self._commands.judged_by(commit)
        if commit.snapshot:
            self._next_snapshot = (commit.effective_step // self._snapshot_every + 1) * self._snapshot_every
        if self._due_step is not None and self._due_step <= commit.effective_step:
            self._due_step = None

    def _take_votes(self) -> list[Entry]:
        votes, self._votes = self._votes, []
        return votes
