"""`esper dead`: what was set aside, why, and what becomes of it."""

from __future__ import annotations

import asyncio
import json as notation
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias

import typer

from esper.bus import connect
from esper.bus.names import key, row_of
from esper.bus.upkeep import dead
from esper.bus.upkeep.dead import ENTRY_ID, Choice, Letter
from esper.cli.options import AsJson, LiveRun, Since, Until
from esper.cli.output.letters import content, envelope, line, page, summary
from esper.cli.output.moments import after, up_to
from esper.cli.output.width import fitting
from esper.errors import SettingError, near
from esper.leyline import contracts as pb
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.lifecycle import reason_name
from esper.leyline.terminal_text import printable
from esper.runtime import access
from esper.runtime.history.reissue import Reissued, Reissuer, accepted
from esper.view.wording import told as worded

app = typer.Typer(name="dead", no_args_is_help=True, help="Look at, replay and purge what was set aside.")

Asked: TypeAlias = Callable[[float], Choice]
"""Which letters, once the server's time is known, in seconds."""

REASONS = [reason_name(number) for number in pb.ReasonCode.values() if number]
Reason = Annotated[str, typer.Option(help="Only those of this reason, such as poison or bad_seal.")]
Stream = Annotated[str, typer.Option(metavar="GLOB", help="Only those from such a stream, as commands or r0/*.")]
Producer = Annotated[str, typer.Option(metavar="GLOB", help="Only those whose envelope names such a producer.")]
Count = Annotated[int, typer.Option(min=0, help="Only the first so many; 0: all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Ids as `esper dead list` shows them.")]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """One run's dead letters within reach."""

    redis: connect.Redis
    keyring: RoleKeyring
    now_ms: int

    async def letter(self, entry_id: str) -> Letter:
        """The letter of this id; SettingError where there is none."""
        if not ENTRY_ID.fullmatch(entry_id):
            raise SettingError("id", entry_id, "an entry id such as 1700000000000-0")
        found = await dead.letter_of(self.redis, self.keyring.run_id, entry_id)
        if found is None:
            raise SettingError("id", entry_id, "that of a dead letter of this run; it may have been replayed or purged")
        return found

    async def letters(self, ids: Sequence[str], choice: Choice) -> list[Letter]:
        """Those of these ids, or where none is given all that are chosen."""
        if ids:
            return [await self.letter(letter_id) for letter_id in dict.fromkeys(ids)]
        return [letter async for letter in dead.letters(self.redis, self.keyring.run_id, choice)]


@app.command("list")
def list_letters(
    run: LiveRun = None,
    reason: Reason = "",
    stream: Stream = "",
    producer: Producer = "",
    since: Since = "0",
    until: Until = "$",
    count: Count = 0,
    json: AsJson = False,
) -> None:
    """Show dead letters, oldest first: id, age, reason, stream, producer, attempts, size."""
    asked = asked_for(reason, stream, producer, since, until, count)
    asyncio.run(_list(run, asked, json))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `esper dead list` shows it.")],
    run: LiveRun = None,
    json: AsJson = False,
) -> None:
    """Show one letter whole: where it lay, what its envelope says, and its body where the keyring opens it."""
    asyncio.run(_show(run, letter_id, json))


@app.command()
def replay(
    ids: Ids = None,
    run: LiveRun = None,
    reason: Reason = "",
    stream: Stream = "",
    producer: Producer = "",
    since: Since = "0",
    until: Until = "$",
    count: Count = 0,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Publish refused commands again under a fresh seal, each once however often this is run.

    All are judged before the first is published: where one can't be replayed, none is.
    """
    asked = asked_for(reason, stream, producer, since, until, count)
    asyncio.run(_replay(run, aimed(ids, asked(time.time()), "what to replay"), asked, dry_run, json))


@app.command()
def purge(
    ids: Ids = None,
    run: LiveRun = None,
    reason: Reason = "",
    stream: Stream = "",
    producer: Producer = "",
    since: Since = "0",
    until: Until = "$",
    count: Count = 0,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Delete dead letters for good, after asking. Without ids and options: all of the run."""
    asked = asked_for(reason, stream, producer, since, until, count)
    rows = asyncio.run(_rows(run, named(ids, asked(time.time())), asked))
    if dry_run or not rows:
        for row in rows:
            print(notation.dumps({"would": "purge", **row}) if json else f"would purge {line(row)}")
        print(notation.dumps({"would_purge": len(rows)}) if json else f"would purge {len(rows)} dead letters")
        return
    found = [str(row["id"]) for row in rows]
    if yes or agreed(f"Purge {len(found)} dead letters, {found[0]} to {found[-1]}, for good?"):
        num = asyncio.run(_purge(run, found))
        print(notation.dumps({"purged": num}) if json else f"purged {num} dead letters")


def agreed(question: str) -> bool:
    """Whether the answer is yes. All of the question is on stderr: `typer.confirm` leaves its last blank on stdout."""
    while True:
        print(f"{question} [y/N]: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            raise typer.Abort
        answer = line.strip().lower()
        if answer in ("", "n", "no", "y", "yes"):
            return answer in ("y", "yes")


def asked_for(reason: str, stream: str, producer: str, since: str, until: str, count: int) -> Asked:
    """What the options ask for; SettingError before anything is connected to."""
    asked = partial(chosen, reason, stream, producer, since, until, count)
    asked(time.time())
    return asked


def chosen(reason: str, stream: str, producer: str, since: str, until: str, count: int, now_s: float) -> Choice:
    """The same by a clock: letters have their ids by the server's, which this machine's may be far from."""
    if reason and reason not in REASONS:
        raise SettingError("--reason", reason, f"one of {', '.join(REASONS)}{near(reason, REASONS)}")
    from_id = after("--since", since, now_s)
    to_id = "+" if until == "$" else up_to("--until", until, now_s)
    return Choice(reason, f"{int(now_s * 1000)}-0" if from_id == "$" else from_id, count, to_id, stream, producer)


def aimed(ids: Sequence[str] | None, choice: Choice, what: str) -> Sequence[str]:
    """The ids, where anything at all is asked for: a replay of all there is was never meant."""
    if not ids and choice == Choice():
        raise SettingError("ID", "", f"{what}: ids, or an option that chooses them, such as --reason poison")
    return named(ids, choice)


def named(ids: Sequence[str] | None, choice: Choice) -> Sequence[str]:
    """The ids, or none: then the options choose. SettingError: there are both."""
    if ids and choice != Choice():
        raise SettingError("ID", ids[0], "either ids, or options that choose letters, such as --reason poison")
    return ids or []


@asynccontextmanager
async def dead_letters(run: str | None) -> AsyncIterator[DeadLetters]:
    found = await access.find(run)
    async with connect.writer(found.redis_url) as redis:
        yield DeadLetters(redis, found.keyring, await connect.server_ms(redis, key(found.run_id, "dead")))


async def _list(run: str | None, asked: Asked, as_json: bool) -> None:
    is_empty = True
    async with dead_letters(run) as at:
        async for letter in dead.letters(at.redis, at.keyring.run_id, asked(at.now_ms / 1000)):
            row, is_empty = summary(letter, at.now_ms), False
            print(notation.dumps(row) if as_json else fitting(line(row)))
    if is_empty and not as_json:
        typer.echo("no dead letters", err=True)


async def _show(run: str | None, letter_id: str, as_json: bool) -> None:
    async with dead_letters(run) as at:
        letter = await at.letter(letter_id)
        told = {**summary(letter, at.now_ms), **envelope(letter), **content(letter, at.keyring, at.now_ms)}
    print(notation.dumps(told) if as_json else page(told))


async def _replay(run: str | None, ids: Sequence[str], asked: Asked, dry_run: bool, as_json: bool) -> None:
    async with dead_letters(run) as at:
        plan = await _judged(at, await at.letters(ids, asked(at.now_ms / 1000)))
        for letter, again in plan:
            told: dict[str, object] = {
                **{"id": letter.entry_id, "stream": row_of(again.stream).name, "command_id": again.command_id},
                "command": worded(again.message),
            }
            if not dry_run:
                told["replayed_as"] = await dead.put_back(
                    at.redis, at.keyring.run_id, letter.entry_id, again.stream, again.sealed
                )
            print(notation.dumps(told) if as_json else printable(replayed(told)), flush=True)


async def _judged(at: DeadLetters, letters: Sequence[Letter]) -> list[tuple[Letter, Reissued]]:
    """Each command under its fresh seal. SettingError or RefusedError: one of them must not be published again."""
    reissuer = Reissuer(at.keyring, "dead")
    before = {command_id async for command_id in accepted(at.redis, at.keyring, at.now_ms)}
    plan: list[tuple[Letter, Reissued]] = []
    for letter in letters:
        again = reissuer.reissue(letter, at.now_ms)
        if again.command_id in before:
            raise SettingError("command", again.command_id, "one that was never accepted: it would take effect twice")
        plan.append((letter, again))
        before.add(again.command_id)
    return plan


async def _rows(run: str | None, ids: Sequence[str], asked: Asked) -> list[dict[str, object]]:
    async with dead_letters(run) as at:
        return [summary(letter, at.now_ms) for letter in await at.letters(ids, asked(at.now_ms / 1000))]


async def _purge(run: str | None, ids: Sequence[str]) -> int:
    async with dead_letters(run) as at:
        return await dead.delete(at.redis, at.keyring.run_id, ids)


def replayed(told: dict[str, object]) -> str:
    """One line on what became of a letter."""
    what = f"command {told['command_id']}, {told['command']}"
    if "replayed_as" not in told:
        return f"would replay {told['id']} to {told['stream']} and take its letter away: {what}"
    if told["replayed_as"] is None:
        return f"{told['id']} is gone: replayed or purged meanwhile"
    return f"replayed {told['id']} to {told['stream']} as {told['replayed_as']}: {what}"
