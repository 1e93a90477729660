"""`esper audit`: who signed what in a run, what became of it, and what was rejected, by source and reason."""

from __future__ import annotations

import asyncio
import json as notation
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC
from typing import Any, TypeVar

import typer

from esper.bus import connect, names
from esper.bus.group.delivery import FIELD
from esper.bus.upkeep import dead
from esper.bus.upkeep.dead import Choice, Letter
from esper.cli.options import RUNS, AnyKeyring, AsJson, LoggedRun, RunsDir, SameRun, Since, logged
from esper.cli.output.moments import NOW, after, moment
from esper.cli.output.verdict import ending_with
from esper.cli.output.width import fitting
from esper.leyline.archive import Entry
from esper.leyline.entries import entry_ms
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.terminal_text import printable
from esper.runtime.history import logbook
from esper.runtime.history.audit import peeked
from esper.runtime.history.logbook import Logbook, Read, opened
from esper.runtime.history.provenance import PROOFS, Deed, Provenance, Rejection, Signer, traced, whole
from esper.view.wording import told

UNSIGNED = 1

T = TypeVar("T")


def audit(
    named: LoggedRun = None,
    run: SameRun = None,
    since: Since = "0",
    keyring: AnyKeyring = None,
    runs_dir: RunsDir = RUNS,
    json: AsJson = False,
) -> None:
    """Print who signed what: role, producer, key, time, command or decision, its receipts; and what was rejected."""
    now_s = time.time()
    start = after("--since", since, now_s)
    book, keys = asyncio.run(logbook.find(logged(named, run), runs_dir, keyring))
    states, letters = asyncio.run(beside(book)) if book.live_at else ([], [])
    book.streams["state"] = states
    found = traced(
        opened_or_peeked(book, keys), letters, keys, f"{int(now_s * 1000)}-0" if start == NOW else whole(start)
    )
    with ending_with(UNSIGNED if any(deed.proof == "unsigned" for deed in found.deeds) else 0):
        for each in rows(found) if json else lines(found):
            typer.echo(notation.dumps(each) if json else fitting(printable(str(each))))
        if not json:
            typer.echo(fitting(printable(summary(book, found, sealed=keys is not None and bool(keys.roles)))))


async def beside(book: Logbook) -> tuple[list[Entry], list[Letter]]:
    """What a live run holds that goes into no log: statements of its workers, and dead letters."""
    async with connect.writer(book.live_at) as redis:
        state = dead.entries(redis, names.key(book.run_id, "state"))
        states = [Entry("state", entry_id.decode(), fields.get(FIELD, b"")) async for entry_id, fields in state]
        return states, [letter async for letter in dead.letters(redis, book.run_id, Choice())]


def opened_or_peeked(book: Logbook, keyring: RoleKeyring | None) -> Mapping[str, Sequence[Read]]:
    """Opened where there are secrets to check seals with; else taken at its word, which the proof says."""
    if keyring is not None and keyring.roles:
        return opened(book, keyring)
    return {name: peeked(book, name) for name in book.streams}


def rows(found: Provenance) -> Iterator[dict[str, Any]]:
    """For a machine: each deed, each signer, each kind of rejection."""
    for deed in found.deeds:
        facts = {each.name: getattr(deed, each.name) for each in fields(deed) if each.name != "message"}
        yield {"row": "deed", **facts, "what": told(deed.message), "at": moment(entry_ms(deed.entry_id), UTC)}
    for signer in found.signers:
        yield {"row": "signer", **told_of(signer), "kinds": dict(signer.kinds)}
    for rejection in found.rejections:
        yield {"row": "rejected", **told_of(rejection), "count": rejection.count}


def told_of(one: Signer | Rejection) -> dict[str, Any]:
    """Its names, and times that are alike on every machine."""
    facts = {name: value for name, value in asdict(one).items() if name not in ("kinds", "count")}
    return {**facts, "first": moment(one.first_ms, UTC), "last": moment(one.last_ms, UTC)}


def lines(found: Provenance) -> Iterator[str]:
    """The same for a person."""
    yield f"{'WHEN':29}  POSITION              PROOF     KEY       WHO                       WHAT"
    for deed in found.deeds:
        yield deed_line(deed)
    yield ""
    yield f"SIGNED BY                      KEY       {'FIRST':29}  {'LAST':29}  MESSAGES"
    for signer in found.signers:
        kinds = ", ".join(f"{number} {kind}" for kind, number in signer.kinds.most_common())
        who = f"{signer.role}/{signer.producer}"
        yield f"{who:30} {signer.key_id}  {moment(signer.first_ms)}  {moment(signer.last_ms)}  {kinds}"
    yield ""
    yield f"REJECTED  REASON              STREAM        {'FIRST':29}  {'LAST':29}  SOURCE"
    for one in found.rejections:
        source = (one.source or "nobody says") + ("" if one.proven else " (not shown by a seal)")
        times = f"{moment(one.first_ms)}  {moment(one.last_ms)}"
        yield f"{one.count:8}  {one.reason:18}  {one.stream:12}  {times}  {source}"


def deed_line(deed: Deed) -> str:
    """Who, what, and what became of it."""
    words = [told(deed.message), f"by {deed.issued_by}" if deed.issued_by else "", deed.verdict]
    words += [f"applied by {workers} before step {step}" for step, workers in grouped(deed.applied)]
    words += [f"failed on {workers} ({reason})" for reason, workers in grouped(deed.failed)]
    words += [f"{seed} {outcome}" for seed, outcome in deed.became.items()]
    at, who = moment(entry_ms(deed.entry_id)), f"{deed.role}/{deed.producer}"
    return f"{at}  {deed.entry_id:21} {deed.proof:9} {deed.key_id}  {who:25} {', '.join(filter(None, words))}"


def grouped(outcomes: Mapping[str, T]) -> list[tuple[T, str]]:
    """Outcomes that are alike, with the workers that had them."""
    alike: dict[T, list[str]] = {}
    for worker, outcome in sorted(outcomes.items()):
        alike.setdefault(outcome, []).append(worker)
    return [(outcome, ", ".join(workers)) for outcome, workers in alike.items()]


def summary(book: Logbook, found: Provenance, *, sealed: bool) -> str:
    """The last line: how much that is, and what it does not show."""
    proofs = Counter(deed.proof for deed in found.deeds)
    proven = ", ".join(f"{proofs[proof]} {proof}" for proof in PROOFS if proofs[proof]) or "none"
    rejected = f"{sum(one.count for one in found.rejections)} rejected"
    missing = "" if sealed else "; no keyring with secrets: seals are not checked"
    ended = "" if book.live_at else "; of a run that has ended no dead letters are kept"
    return f"run {book.run_id}: {len(found.deeds)} deeds ({proven}), {rejected}{missing}{ended}"
