"""`esper streams`: how each stream of a run stands, and the end of a group that nobody reads any more."""

from __future__ import annotations

import asyncio
import json as notation
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from esper.bus import connect
from esper.bus.group.groups import groups_of
from esper.bus.names import key, shown
from esper.bus.upkeep import counters
from esper.bus.upkeep.counters import Count
from esper.bus.upkeep.survey import Group, StreamView, survey
from esper.bus.upkeep.tidy import IDLE_MS, forget_group
from esper.cli.options import AsJson, LiveRun
from esper.cli.output.width import columns, fitting
from esper.errors import SettingError, listed, near
from esper.runtime import access
from esper.runtime.operations.tallies import LOGS, REPEATED, redelivered, tallied

REPEATS = ("replayed", "duplicate")
ROLES = ("coordinator", "regional", "global")
HEAD = ("stream", "length", "group", "lag", "pending", "age", "tries", "consumers")
NUMBERS = ("length", "lag", "pending", "age", "tries")

app = typer.Typer(name="streams", invoke_without_command=True, help="Show each stream of a run, and who reads it.")


@app.callback()
def streams(
    context: typer.Context,
    run: LiveRun = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a look.")] = False,
    watch: Annotated[float, typer.Option(min=0.0, metavar="SECONDS", help="Look again this often; 0: once.")] = 0.0,
) -> None:
    """Show each stream of a run: length, lag, pending, redeliveries, consumers, repeats and what was refused."""
    if context.invoked_subcommand is None:
        asyncio.run(_show(run, json, watch))


@app.command()
def forget(
    group: Annotated[str, typer.Argument(help="The name of a worker that is gone for good.")],
    run: LiveRun = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say where the group stands, and do nothing.")] = False,
    json: AsJson = False,
) -> None:
    """Destroy the groups of a worker that is gone, once their position is told. Refused while it still reads."""
    if group in ROLES:
        raise SettingError(
            "group", group, f"that of a worker; {', '.join(ROLES)} are shared, and read again at a start"
        )
    asyncio.run(_forget(run, group, dry_run, json))


async def _show(run: str | None, as_json: bool, watch_s: float) -> None:
    found = await access.find(run)
    async with connect.writer(found.redis_url) as redis:
        while True:
            views = await survey(redis, found.run_id)
            said = await counters.read(
                redis, found.run_id, await connect.server_ms(redis, key(found.run_id, "counters"))
            )
            rows = [row(view, said.values()) for view in views]
            print(
                notation.dumps({"run": found.run_id, "streams": rows}) if as_json else fitting(table(rows)), flush=True
            )
            if not watch_s:
                return
            await asyncio.sleep(watch_s)


async def _forget(run: str | None, group: str, dry_run: bool, as_json: bool) -> None:
    from esper.client import Controller

    async with Controller.connect(run, name="forget") as controller:
        heard = await controller.observer.heard(key(controller.run_id, "heartbeats"))
    found = await access.find(run)
    num = 0
    async with connect.writer(found.redis_url) as redis:
        silent_ms = await connect.server_ms(redis, key(found.run_id, "heartbeats")) - heard.at_ms.get(group, 0)
        if silent_ms < IDLE_MS:  # its groups alone don't tell: where nothing is to be read, nobody seems to read
            raise SettingError(
                "group", group, f"that of a worker gone quiet; it was heard of {silent_ms / 1000:.1f} s ago"
            )
        for log in LOGS:
            position = await forget_group(redis, key(found.run_id, log), group, idle_ms=IDLE_MS, dry_run=dry_run)
            if position is not None:
                num += 1
                told = {"stream": log, "group": group, "destroyed": not dry_run}
                told |= {"read_up_to": position.last_delivered, "pending": position.pending}
                print(notation.dumps(told) if as_json else forgotten(told), flush=True)
        if not num:
            known = await _workers(redis, found.run_id)
            raise SettingError("group", group, f"that of a worker: {listed(known)}{near(group, known)}")


async def _workers(redis: connect.Redis, run_id: str) -> list[str]:
    """Whose groups there are."""
    groups = [each for log in LOGS for each in await groups_of(redis, key(run_id, log))]
    return sorted({shown(each["name"]) for each in groups}.difference(ROLES))


def forgotten(told: Mapping[str, Any]) -> str:
    """One line on a group that is gone, or would be."""
    did = "destroyed" if told["destroyed"] else "would destroy"
    return f"{did} {told['group']} of {told['stream']}: read up to {told['read_up_to']}, {told['pending']} pending"


def row(view: StreamView, said: Collection[Iterable[Count]]) -> dict[str, Any]:
    """What there is to tell of one stream; what is counted is so since their processes began."""
    told = tallied(view.name, said)
    refused = {reason: number for reason, number in told.most_common() if reason != REPEATED}
    return {
        "stream": view.name,
        "length": view.length,
        "groups": [group_row(group, redelivered(view.name, group.name, said)) for group in view.groups],
        "deduplicated": told[REPEATED] + sum(told[reason] for reason in REPEATS),
        "refused": refused,
    }


def group_row(group: Group, num_redelivered: int) -> dict[str, Any]:
    """One group of it. `lag` null: too long to count on this server."""
    return {
        "group": group.name,
        "lag": group.lag,
        "pending": group.pending,
        "oldest_pending_s": group.oldest_pending_s,
        "max_deliveries": group.max_attempts,
        "redelivered": num_redelivered,
        "active": group.num_active,
        "quiet": group.num_quiet,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line for each group of each stream: what waits, the age of the oldest that is pending, its deliveries."""
    cells = [HEAD, *(line for one in rows for line in lines(one))]
    return "\n".join(columns(cells, [HEAD.index(name) for name in NUMBERS]))


def lines(one: Mapping[str, Any]) -> list[list[str]]:
    """A stream's lines: one for each group, at least one, and what was refused or repeated on the first."""
    told = [f"{one['deduplicated']} repeats"] * bool(one["deduplicated"])
    told += [f"{number} {reason}" for reason, number in one["refused"].items()]
    first, *rest = [cells(group) for group in one["groups"]] or [["-", "", "", "", "", ""]]
    first[-1] = "  ".join(filter(None, [first[-1], ", ".join(told)]))
    return [[one["stream"], str(one["length"]), *first], *(["", "", *each] for each in rest)]


def cells(group: Mapping[str, Any]) -> list[str]:
    """One group's figures."""
    lag = "unknown" if group["lag"] is None else str(group["lag"])
    again = f", {group['redelivered']} redelivered" if group["redelivered"] else ""
    consumers = f"{group['active']} active, {group['quiet']} quiet{again}"
    oldest = f"{group['oldest_pending_s']:.1f}s"
    return [group["group"], lag, str(group["pending"]), oldest, str(group["max_deliveries"]), consumers]
