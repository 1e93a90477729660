"""Every decision of a run in one line each: what it was, who sealed it, and whether the signature holds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.leyline.envelope import SEAL_BYTES, Header, unpack
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.lifecycle import reason_name
from esper.leyline.seal import Opened, check_signature
from esper.leyline.succession import Succession
from esper.view.orders import Order
from esper.view.wording import told

MOST_ROWS, MOST_REFUSED = 2_000, 200
Standing: TypeAlias = Literal["verified", "sealed", "unsigned", "refused", "unchecked"]
"""verified: by the controller's own Ed25519 key. sealed: of a kind that carries no signature, its seal (HMAC) is right.
unsigned: a command without the signature that it should carry, or with a wrong one. refused: no reader takes it.
unchecked: there is no key to check it by."""
_Kept: TypeAlias = pb.AdaptationCommand | pb.OptimizerCommand | pb.BarrierCommit | pb.BarrierAbort
_Told: TypeAlias = _Kept | pb.LeaderAnnouncement | pb.EmergencySignal


@dataclass(frozen=True, slots=True)
class Seal:
    """Who sealed an entry, as its envelope says, and how far that is shown."""

    standing: Standing
    role: str = ""
    producer: str = ""
    key_id: str = ""  # eight hex digits
    detail: str = ""  # why not


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of a stream."""

    stream: str
    entry_id: str
    kind: str
    what: str
    seal: Seal
    issued_by: str = ""
    seed_id: str = ""
    step: int | None = None  # before which a commit takes effect
    is_empty: bool = False  # a round in which nothing was decided
    order: Order | None = None  # what became of a command

    @property
    def key(self) -> tuple[int, int, str]:
        """By time, then by stream."""
        return *entry_order(self.entry_id), self.stream


@dataclass
class Timeline:
    """The newest rows of three kinds, so that neither a flood of junk nor empty rounds displace what was decided."""

    most: int = MOST_ROWS
    most_refused: int = MOST_REFUSED
    _decided: OrderedDict[tuple[str, str], Row] = field(default_factory=OrderedDict)
    _empty: OrderedDict[tuple[str, str], Row] = field(default_factory=OrderedDict)
    _refused: OrderedDict[tuple[str, str], Row] = field(default_factory=OrderedDict)
    _met: OrderedDict[bytes, tuple[str, str]] = field(default_factory=OrderedDict)  # by seal: where it lay first
    _succession: Succession = field(default_factory=Succession)
    num_refused: int = 0

    def note(self, opened: Opened, keyring: RoleKeyring | None, order: Order | None = None) -> Row | None:
        """Take a message that opened; None: it is no decision. `order` is what a command is answered in."""
        message = opened.message
        if not isinstance(message, _Told):
            return None
        row = _row(opened, message, seal_of(opened, keyring), order)
        if (first := self._first_place(opened, row)) != (row.stream, row.entry_id):
            why = RefusedError(pb.ReasonCode.REASON_REPLAYED, f"{row.what}, which lies in entry {first[1]} already")
            return self.refuse(row.stream, row.entry_id, opened.sealed, why, order)
        if self._is_void(message, row):
            row = replace(row, what=f"void, as another one leads: {row.what}")
        if row.is_empty:
            _keep(self._empty, row, self.most_refused)
        else:
            _keep(self._decided, row, self.most)
        return row

    def _is_void(self, message: _Told, row: Row) -> bool:
        """Whether whoever said this led no more, in the order of the stream. Read again, it is what it was."""
        if not isinstance(message, pb.BarrierCommit | pb.BarrierAbort | pb.LeaderAnnouncement):
            return False
        known = self._decided.get((row.stream, row.entry_id)) or self._empty.get((row.stream, row.entry_id))
        return known.what != row.what if known else not self._succession.holds(message)

    def _first_place(self, opened: Opened, row: Row) -> tuple[str, str]:
        """Where the very same bytes were met first: whoever may write to a stream can copy what is sealed."""
        first = self._met.setdefault(opened.sealed[-SEAL_BYTES:], (row.stream, row.entry_id))
        while len(self._met) > 4 * self.most:
            self._met.popitem(last=False)
        return first

    def refuse(self, stream: str, entry_id: str, sealed: bytes, error: RefusedError, order: Order | None = None) -> Row:
        """Take an entry that did not open. What it claims of itself is shown as such."""
        self.num_refused += 1
        row = Row(stream, entry_id, "refused", reason_name(error.reason), refusal(sealed, error), order=order)
        _keep(self._refused, row, self.most_refused)
        return row

    def answer(self, row: Row, order: Order) -> Row:
        """Let a row that was refused by us show what the coordinator answered: that comes after it."""
        answered = replace(row, order=order)
        for rows in (self._decided, self._refused):
            if (row.stream, row.entry_id) in rows:
                rows[row.stream, row.entry_id] = answered
        return answered

    @property
    def rows(self) -> list[Row]:
        """Oldest first."""
        kept = (*self._decided.values(), *self._empty.values(), *self._refused.values())
        return sorted(kept, key=lambda row: row.key)


def seal_of(opened: Opened, keyring: RoleKeyring | None) -> Seal:
    """Of what opened: its seal is right, where there were secret keys to open it by; commands are signed, too."""
    if not isinstance(opened.message, pb.AdaptationCommand) or keyring is None:
        return _seal("sealed" if keyring is not None and keyring.roles else "unchecked", opened.header)
    try:
        check_signature(opened.sealed, keyring)
    except RefusedError as error:
        return _seal("unsigned", opened.header, error.detail)
    return _seal("verified", opened.header)


def refusal(sealed: bytes, error: RefusedError) -> Seal:
    """Of what did not: names are those that the envelope claims, if it can be taken apart at all."""
    detail = f"{reason_name(error.reason)}: {error.detail}"
    try:
        return _seal("refused", unpack(sealed).header, detail)
    except RefusedError:
        return Seal("refused", detail=detail)


def _seal(standing: Standing, header: Header, detail: str = "") -> Seal:
    return Seal(standing, header.role.value, header.producer, f"{header.key_id:08x}", detail)


def _row(opened: Opened, message: _Told, seal: Seal, order: Order | None) -> Row:
    what, entry_id = told(message), opened.entry_id
    match message:
        case pb.AdaptationCommand():
            seed = order.seed_id if order else ""
            return Row("commands", entry_id, "command", what, seal, message.issued_by, seed, order=order)
        case pb.OptimizerCommand():
            return Row("optimizer", entry_id, "command", what, seal, "", order.seed_id if order else "", order=order)
        case pb.BarrierCommit():
            return Row(
                "decisions", entry_id, "commit", what, seal, step=message.effective_step, is_empty=_empty(message)
            )
        case pb.BarrierAbort():
            return Row("decisions", entry_id, "abort", what, seal)
        case pb.LeaderAnnouncement():
            return Row("decisions", entry_id, "leader", what, seal)
        case pb.EmergencySignal():
            return Row("emergency", entry_id, "emergency", what, seal, step=message.global_step)


def _empty(commit: pb.BarrierCommit) -> bool:
    """Snapshots are taken by the clock: nobody decided them."""
    return not (commit.commands or commit.requests or commit.deviating or commit.deviating_gradients)


def _keep(rows: OrderedDict[tuple[str, str], Row], row: Row, most: int) -> None:
    rows[row.stream, row.entry_id] = row
    while len(rows) > most:
        rows.popitem(last=False)
