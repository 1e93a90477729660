"""Bad input and good input in one row through a reader that has met the producers, and through one that hasn't."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.lifecycle import reason_name
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opened, Opener, check_signature
from tests.faults.check import exactly_once
from tests.faults.forge import Forge
from tests.faults.fuzz_case import ACCEPTED, Case, Class
from tests.faults.row import Result

SETTLED_EVERY = 256  # entries
COLD_EVERY = 10
READER = "worker-0"


class Gate:
    """One reader of commands, at one moment. Notes what took effect, and what should have."""

    def __init__(self, forge: Forge, now_ms: int, result: Result) -> None:
        self.forge, self.now_ms, self.result = forge, now_ms, result
        self.met: Counter[str] = Counter()  # samples of each class
        self.sent: list[str] = []
        self.applied: list[str] = []
        self._keyring = forge.secrets.keyring(Role.WORKER)
        self._guard = ReplayGuard()
        self._warm = self._reader()
        self._num_entries = self._num_bad = 0

    def good(self) -> None:
        """One message that must be let in."""
        command_id, sealed = self.forge.genuine()
        self._expect_effect(sealed, command_id, signed=True, what="genuine")
        self.forge.recent.append(sealed)
        self.result.count("genuine")

    def bad(self, kind: Class, number: int) -> None:
        """One sample of a class: refused for a reason that is named there, or let in where that is stated."""
        with telling(kind, number):
            case = kind.make(self.forge, number)
            self.met[kind.name] += 1
            if kind.passes:
                self._expect_effect(case.body, case.command_id, signed=kind.audited, what=kind.name)
                self.result.count("taken_as_stated")
            else:
                self._expect_refusal(kind, number, case)

    def judge(self) -> None:
        """Exactly what should have took effect, once."""
        self.result.violations += exactly_once(self.sent, self.sent, self.applied)

    def _expect_refusal(self, kind: Class, number: int, case: Case) -> None:
        entry_id = self._next_entry()
        self._num_bad += 1
        cold = self._answer(self._reader(), case.body, entry_id)[0] if self._num_bad % COLD_EVERY == 0 else None
        met, opened = self._answer(self._warm, case.body, entry_id)
        self.result.expect(met in kind.allowed, f"{kind.name} {number}: {met}; expected {sorted(kind.allowed)}")
        if cold is not None:
            self.result.expect(cold == met, f"{kind.name} {number}: {met}, but {cold} by who knows nobody")
        if opened is not None and not kind.may_pass:
            self.applied.append(command_id_of(opened))
        self.result.count("undetermined" if kind.may_pass else "refused")
        self.result.count(f"as_{met}")

    def _expect_effect(self, body: bytes, command_id: str, *, signed: bool, what: str) -> None:
        self.sent.append(command_id)
        met, opened = self._answer(self._warm, body, self._next_entry())
        self.result.expect(opened is not None, f"{what}: {command_id} was refused as {met}")
        if opened is not None:
            self.applied.append(command_id_of(opened))
            self.result.expect(not opened.redelivered, f"{what}: {command_id} was taken for a redelivery")
        if len(self.sent) % COLD_EVERY == 0 or not signed:
            self.result.expect(is_signed(body, self._keyring) == signed, f"{what}: audited as signed: {not signed}")

    def _answer(self, reader: Opener, body: bytes, entry_id: str) -> tuple[str, Opened | None]:
        try:
            return ACCEPTED, reader.open(body, entry_id, self.now_ms)
        except RefusedError as error:
            return reason_name(error.reason), None

    def _next_entry(self) -> str:
        self._num_entries += 1
        if self._num_entries % SETTLED_EVERY == 0:
            self._guard.changed()
        return f"{self.now_ms}-{self._num_entries}"

    def _reader(self) -> Opener:
        return Opener(self._keyring, name=READER, guard=self._guard, accept=[Domain.COMMAND])


def is_signed(body: bytes, keyring: RoleKeyring) -> bool:
    """Whether an audit finds the controller's signature good."""
    try:
        check_signature(body, keyring)
    except RefusedError as error:
        if error.reason != pb.ReasonCode.REASON_BAD_SEAL:
            raise
        return False
    return True


def command_id_of(opened: Opened) -> str:
    assert isinstance(opened.message, pb.AdaptationCommand)
    return opened.message.command_id


@contextmanager
def telling(kind: Class, number: int) -> Iterator[None]:
    """What breaks the reader says by which sample."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"by sample {number} of {kind.name}")
        raise


def resident_bytes(pid: int | str = "self") -> int:
    """Memory that a process holds at this moment."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
