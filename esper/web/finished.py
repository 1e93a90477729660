"""A finished run, folded from its log and from what it said beside it: what its report is made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from google.protobuf.message import Message

from esper.cli.running.summary import barriers
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_ms, entry_order
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.seal import Opened
from esper.runtime.history.audit import Audit, audit, peeked
from esper.runtime.history.logbook import Logbook, Read, opened
from esper.view.curves import Curves
from esper.view.orders import Orders
from esper.view.picture import COMMAND_STREAMS, Picture
from esper.view.timeline import Timeline

EVERY = 1_000_000
"""Rows and commands of a report: all."""


@dataclass
class Finished:
    """All that is known of a run, and what an audit of its log found."""

    picture: Picture
    checked: Audit
    keyring: RoleKeyring | None
    curves: Curves = field(default_factory=Curves)
    timeline: Timeline = field(default_factory=lambda: Timeline(EVERY, EVERY))
    reports: dict[str, pb.WorkerReport] = field(default_factory=dict)
    decisions: list[Message] = field(default_factory=list)
    world_size: int = 0
    """Ranks, as the last one that ended says."""
    first_ms: int = 0
    last_ms: int = 0

    @property
    def rounds(self) -> dict[str, object]:
        """Counts and latencies of all rounds."""
        return barriers(self.decisions)

    @property
    def are_equal(self) -> bool | None:
        """Whether all ranks ended with the same parameters; None: not all of them said."""
        told = {report.parameter_digest for report in self.reports.values()}
        if len(told) > 1:
            return False
        return True if told and len(self.reports) >= self.world_size else None

    def note(self, message: Opened) -> None:
        """Take one that opened, in the order of time."""
        self.picture.note(message)
        self.curves.note(message)
        order = self.picture.orders.about(message)
        if order is not None:
            self.curves.note_order(order)
        self.timeline.note(message, self.keyring, order)
        match message.message:
            case pb.BarrierCommit() | pb.BarrierAbort() | pb.LeaderAnnouncement():
                self.decisions.append(message.message)
            case pb.RunRecord() as record if record.HasField("began"):
                self.curves.go_back(record.worker, record.world_size, record.began.first_step)
            case pb.RunRecord() as record if record.HasField("ended"):
                self._note_end(record)
            case pb.SystemStatePacket() as state:
                at_ms = entry_ms(message.entry_id)
                self.picture.seeds.note_states(state.source_subsystem, list(state.seed_states), at_ms)
                self.picture.seeds.miss(state.source_subsystem, list(state.seed_states), at_ms)

    def refuse(self, read: Read) -> None:
        """Take one that no reader takes."""
        if read.refused is not None:
            entry = read.entry
            order = self.picture.orders.answered(entry.entry_id) if entry.stream in COMMAND_STREAMS else None
            self.timeline.refuse(entry.stream, entry.entry_id, entry.sealed, read.refused, order)

    def settle(self) -> None:
        """Seeds of which no rank told a state, as in a run that was cut off: what commands and answers say of them."""
        self._name_sites()
        for seed in self.picture.seeds.ordered:
            reached = [moment.stage for moment in seed.moments if moment.passed and moment.stage]
            if reached and not seed.state.stage:
                seed.state.stage = reached[-1]

    def _name_sites(self) -> None:
        """By the commands that let seeds germinate, as far as somebody answered."""
        for order in self.picture.orders.newest:
            born = order.command.seed_command if isinstance(order.command, pb.AdaptationCommand) else None
            if born is not None and born.site and order.outcomes:
                state = self.picture.seeds.of(born.seed_id).state
                state.site, state.blueprint_id = state.site or born.site, state.blueprint_id or born.blueprint_id

    def _note_end(self, record: pb.RunRecord) -> None:
        report = record.ended.report
        self.reports[record.worker], self.world_size = report, record.world_size
        for seed in report.seeds:
            self.picture.seeds.note_report(seed)
            state = pb.SeedState(seed_id=seed.seed_id, site=seed.site, blueprint_id=seed.blueprint_id, stage=seed.stage)
            known = self.picture.seeds.of(seed.seed_id)
            if not known.shown_by:  # no state told of it
                known.state = state
            known.state.stage, known.is_gone = seed.stage, False


def fold(book: Logbook, keyring: RoleKeyring | None, beside: Iterable[Opened] = ()) -> Finished:
    """Everything, in the order of time. Without secret keys nothing but signatures is checked, and it says so."""
    checked = audit(book, keyring)
    found = Finished(Picture(checked.run_id, orders=Orders(EVERY)), checked, keyring)
    sealed = keyring is not None and bool(keyring.roles)
    reads = opened(book, keyring) if sealed and keyring else {name: peeked(book, name) for name in book.streams}
    entries = [read for stream in reads.values() for read in stream]
    whole: list[Read | Opened] = [*entries, *beside]
    for each in sorted(whole, key=_place):
        if isinstance(each, Opened):
            found.note(each)
        elif each.opened is not None:
            found.note(each.opened)
        else:
            found.refuse(each)
    found.settle()
    if entries:
        times = [entry_ms(read.entry.entry_id) for read in entries]
        found.first_ms, found.last_ms = min(times), max(times)
    return found


def _place(each: Read | Opened) -> tuple[int, int]:
    return entry_order(each.entry_id if isinstance(each, Opened) else each.entry.entry_id)
