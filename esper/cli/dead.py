"""`esper dead`: what was set aside, why, and what becomes of it."""

from __future__ import annotations

import asyncio
import json as notation
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from esper.bus import connect, dead
from esper.bus.dead import ENTRY_ID, Choice, Letter
from esper.errors import RefusedError, SettingError
from esper.leyline.envelope import unpack
from esper.leyline.lifecycle import reason_name
from esper.leyline.rolekeys import RoleKeyring
from esper.runtime import access
from esper.runtime.reissue import Reissuer, accepted, opened

app = typer.Typer(name="dead", no_args_is_help=True, help="Look at, replay and purge what was set aside.")

Run = Annotated[str | None, typer.Option(help="Name or id of a live run; else ESPER_RUN.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Reason = Annotated[str, typer.Option(help="Only those of this reason, such as poison or bad_seal.")]
Since = Annotated[str, typer.Option(metavar="ID", help="Only those after this id.")]
Count = Annotated[int, typer.Option(min=0, help="Only the first so many; 0: all.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids as `esper dead list` shows them.")]


@dataclass(frozen=True, slots=True)
class Desk:
    """One run's dead letters within reach."""

    redis: connect.Redis
    keyring: RoleKeyring
    now_ms: int

    async def letter(self, entry_id: str) -> Letter:
        """The letter of this id; SettingError where there is none."""
        found = await dead.letter_of(self.redis, self.keyring.run_id, checked("id", entry_id))
        if found is None:
            raise SettingError("id", entry_id, "that of a dead letter of this run; it may have been replayed or purged")
        return found


@app.command("list")
def list_letters(
    run: Run = None, reason: Reason = "", since: Since = "0", count: Count = 0, json: AsJson = False
) -> None:
    """Show dead letters, oldest first: id, age, reason, stream, producer, attempts, size."""
    asyncio.run(_list(run, Choice(reason, checked("--since", since), count), json))


@app.command()
def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `esper dead list` shows it.")],
    run: Run = None,
    json: AsJson = False,
) -> None:
    """Show one letter whole: where it lay, what its envelope says, and its body where the keyring opens it."""
    asyncio.run(_show(run, letter_id, json))


@app.command()
def replay(ids: Ids, run: Run = None, dry_run: DryRun = False, json: AsJson = False) -> None:
    """Publish refused commands again under a fresh seal, each once however often this is run."""
    asyncio.run(_replay(run, ids, dry_run, json))


@app.command()
def purge(
    run: Run = None,
    reason: Reason = "",
    since: Since = "0",
    count: Count = 0,
    dry_run: DryRun = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Delete dead letters for good, after asking."""
    choice = Choice(reason, checked("--since", since), count)
    ids = asyncio.run(_chosen(run, choice))
    if dry_run or not ids:
        print(notation.dumps({"would_purge": ids}) if json else f"would purge {len(ids)} dead letters")
        return
    if yes or typer.confirm(f"Purge {len(ids)} dead letters, {ids[0]} to {ids[-1]}, for good?", err=json):
        purged = asyncio.run(_purge(run, ids))
        print(notation.dumps({"purged": purged}) if json else f"purged {purged} dead letters")


@asynccontextmanager
async def desk(run: str | None) -> AsyncIterator[Desk]:
    found = await access.find(run)
    async with connect.writer(found.redis_url) as redis:
        yield Desk(redis, found.keyring, await connect.server_ms(redis))


async def _list(run: str | None, choice: Choice, as_json: bool) -> None:
    async with desk(run) as at:
        async for letter in dead.letters(at.redis, at.keyring.run_id, choice):
            row = summary(letter, at.now_ms)
            print(notation.dumps(row) if as_json else line(row))


async def _show(run: str | None, letter_id: str, as_json: bool) -> None:
    async with desk(run) as at:
        letter = await at.letter(letter_id)
        told = {**summary(letter, at.now_ms), **envelope(letter), **content(letter, at)}
    if as_json:
        print(notation.dumps(told))
        return
    for name, value in told.items():
        text = notation.dumps(value, indent=2) if isinstance(value, dict) else printable(str(value))
        print(f"{name:18} {text}")


async def _replay(run: str | None, ids: list[str], dry_run: bool, as_json: bool) -> None:
    async with desk(run) as at:
        reissuer = Reissuer(at.keyring, "dead")
        before = {command_id async for command_id in accepted(at.redis, at.keyring, at.now_ms)}
        for letter_id in dict.fromkeys(ids):
            again = reissuer.reissue(await at.letter(letter_id), at.now_ms)
            if again.command_id in before:
                raise SettingError(
                    "command", again.command_id, "one that was never accepted: it would take effect twice"
                )
            told: dict[str, object] = {"id": letter_id, "command_id": again.command_id}
            if not dry_run:
                told["replayed_as"] = await dead.put_back(
                    at.redis, at.keyring.run_id, letter_id, again.stream, again.sealed
                )
            print(notation.dumps(told) if as_json else replayed(told), flush=True)


async def _chosen(run: str | None, choice: Choice) -> list[str]:
    async with desk(run) as at:
        return [letter.entry_id async for letter in dead.letters(at.redis, at.keyring.run_id, choice)]


async def _purge(run: str | None, ids: list[str]) -> int:
    async with desk(run) as at:
        return await dead.delete(at.redis, at.keyring.run_id, ids)


def checked(what: str, entry_id: str) -> str:
    """The entry id, if it is one."""
    if not ENTRY_ID.fullmatch(entry_id):
        raise SettingError(what, entry_id, "an entry id such as 1700000000000-0")
    return entry_id


def summary(letter: Letter, now_ms: int) -> dict[str, Any]:
    """What a line of the list tells."""
    return {
        "id": letter.entry_id,
        "age_s": round(max(0, now_ms - letter.made_ms) / 1000, 1),
        "reason": letter.text("reason"),
        "stream": letter.origin,
        "producer": envelope(letter).get("producer", ""),
        "attempts": number(letter.text("attempts")),
        "size": number(letter.text("size")),
        "kept": letter.kept is not None,
        "detail": letter.text("detail"),
    }


def line(row: dict[str, Any]) -> str:
    """The same for a person."""
    kept = "whole" if row["kept"] else "head only"
    told = f"{row['id']:20} {row['age_s']:>9.1f} s  {row['reason']:14} {row['stream']:12} {row['producer'] or '-':14}"
    return printable(f"{told} {row['attempts']}x {row['size']} B ({kept})  {row['detail']}")


def envelope(letter: Letter) -> dict[str, Any]:
    """What the envelope says of itself, believed or not; empty where the head alone was kept, or it is none."""
    try:
        header = unpack(letter.head).header
    except RefusedError:
        return {}
    return {
        "producer": header.producer,
        "role": header.role.value,
        "run": header.run_id,
        "target": header.target,
        "domain": header.domain.name.lower(),
        "kind": header.kind,
        "key_id": f"{header.key_id:08x}",
        "incarnation": f"{header.incarnation:016x}",
        "sequence": header.sequence,
        "issued_at_ns": header.issued_at_ns,
        "deadline": f"{header.deadline_kind.name.lower()} {header.deadline}".removesuffix(" 0"),
        "roster_generation": header.roster_generation,
    }


def content(letter: Letter, at: Desk) -> dict[str, Any]:
    """The body as JSON where the keyring opens it; otherwise why not, with hash and head."""
    from esper.cli.format import as_dict

    told = {"group": letter.text("group"), "entry_id": letter.text("entry_id"), "sha256": letter.text("sha256")}
    if letter.kept is None:
        return {**told, "head": letter.head.hex()}
    try:
        message = opened(letter, at.keyring, at.now_ms).message
    except RefusedError as error:
        return {**told, "refused": f"{reason_name(error.reason)}: {error.detail}", "head": letter.head[:64].hex()}
    return {**told, "type": type(message).__name__, "body": as_dict(message)}


def replayed(told: dict[str, object]) -> str:
    """One line on what became of a letter."""
    if "replayed_as" not in told:
        return f"would replay {told['id']}: command {told['command_id']}"
    if told["replayed_as"] is None:
        return f"{told['id']} is gone: replayed or purged meanwhile"
    return f"replayed {told['id']} as {told['replayed_as']}: command {told['command_id']}"


def number(text: str) -> int:
    """A count from a letter; 0 where anything else stands there."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def printable(text: str) -> str:
    """Without anything that would move a terminal's cursor: anybody's bytes may stand in a letter."""
    return "".join(each if each.isprintable() else "?" for each in text)
