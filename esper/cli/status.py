"""`esper status`: where each worker and each seed of a run stands."""

from __future__ import annotations

import asyncio
import json as notation
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from esper.cli.options import AsObject, NamedRun, SameRun, either
from esper.leyline.lifecycle import CULLED, EMBARGOED

if TYPE_CHECKING:
    from esper.leyline import contracts as pb
    from esper.runtime.watching.liveness import Liveness, Workers
    from esper.view.picture import Picture
    from esper.view.seeds import Moment

GONE = (CULLED, EMBARGOED)
"""Entered in one step."""
BACKLOG = {"heartbeats": 256, "receipts": 2_048, "decisions": 512, "commands": 512, "optimizer": 512}
"""How many of the newest of each stream are read to say why. Receipts tell what became of requests of ranks, too."""


def status(named: NamedRun = None, run: SameRun = None, json: AsObject = False) -> None:
    """Show the newest heartbeat of each worker of a live run, and its seeds: once where all workers say the same."""
    asyncio.run(_status(either(named, run), json))


async def _status(run: str | None, as_json: bool) -> None:
    from esper.bus import names
    from esper.cli.client import Controller, access, connect
    from esper.cli.output.width import fitting

    async with Controller.connect(run, name="status") as controller:
        heartbeats = names.key(controller.run_id, "heartbeats")
        heard = await controller.observer.heard(heartbeats)
        seeds = [state for beat in heard.beats.values() for state in beat.seeds]
        why = reasons(await _picture(run), seeds) if seeds else {}
    if as_json:
        print(notation.dumps(as_object(controller.run_id, heard.beats, why)))
        return
    async with connect.writer((await access.find(run)).redis_url) as redis:
        now_ms = await connect.server_ms(redis, heartbeats)
    lines = [headline(controller.run_id, heard.beats), *worker_lines(heard, why, now_ms)]
    print("\n".join(fitting(line) for line in lines))


def as_object(run_id: str, beats: Workers, why: Mapping[str, str]) -> dict[str, object]:
    """For machines. Culled is a seed that is gone on any worker; of the others what is known is the rollback."""
    from esper.cli.output import format as form

    gone = {state.seed_id for beat in beats.values() for state in beat.seeds if state.stage in GONE}
    return {
        "run": run_id,
        "workers": {name: form.as_dict(beat) for name, beat in sorted(beats.items())},
        "culled": {seed: told for seed, told in why.items() if seed in gone},
        "rolled_back": {seed: told for seed, told in why.items() if seed not in gone},
    }


def headline(run_id: str, beats: Workers) -> str:
    """How many workers were heard of; of how many, where some were not."""
    from esper.runtime.watching.liveness import complete, world_size
    from esper.view.wording import counted

    all_heard = complete(beats) or not beats
    size = counted(len(beats), "worker") if all_heard else f"{len(beats)} of {world_size(beats)} workers"
    return f"run {run_id}: {size} heard of"


def worker_lines(heard: Liveness, why: Mapping[str, str], now_ms: int) -> list[str]:
    """A line of each worker, below it those of its seeds; last the lines that all workers have in common."""
    from esper.cli.output import format as form
    from esper.view.naming import by_value

    seeds = {name: seed_lines(beat, why) for name, beat in heard.beats.items()}
    alike = common_lines([*seeds.values()])
    lines = []
    for name, beat in sorted(heard.beats.items(), key=lambda each: by_value(each[0])):
        lines.append(form.heartbeat_line(beat, heard.age_s(name, now_ms)))
        lines += [line for line in seeds[name] if line not in alike]
    return [*lines, f"on all {len(heard.beats)} workers", *alike] if alike else lines


def seed_lines(beat: pb.Heartbeat, why: Mapping[str, str]) -> list[str]:
    """One of each seed, in the order of the numbers in their names."""
    from esper.cli.output import format as form
    from esper.view.naming import by_value

    states = sorted(beat.seeds, key=lambda each: by_value(each.seed_id))
    return [form.seed_line(state, beat.epoch, why.get(state.seed_id, "")) for state in states]


def common_lines(told: Sequence[Sequence[str]]) -> list[str]:
    """Lines that several workers say, and none of them does not: one place is enough for these."""
    if len(told) < 2:
        return []
    return [line for line in told[0] if all(line in others for others in told)]


async def _picture(run: str | None) -> Picture:
    """Of what was said lately; with the keys of an observer, also of what was asked."""
    from esper.runtime.watching.live import reach, watching
    from esper.view.picture import Picture

    found = await reach(run)
    picture = Picture(found.run_id)
    async with watching(found, "status", picture, BACKLOG):
        return picture


def reasons(picture: Picture, states: Sequence[pb.SeedState]) -> dict[str, str]:
    """Why each of these seeds was culled, or what a rollback has made of it, as far as it was said."""
    told = {}
    for state in states:
        moments, step = picture.seeds.of(state.seed_id).moments, state.stage_since_step
        if state.stage in GONE:
            told[state.seed_id] = culled_by(picture, state.seed_id, step) or culled_for(moments, step)
        elif step in picture.seeds.rollbacks:
            told[state.seed_id] = next((each.detail for each in moments if each.step == step and each.detail), "")
    return {seed: why for seed, why in sorted(told.items()) if why}


def culled_for(moments: Sequence[Moment], step: int) -> str:
    """What was told of the cull in this step, also by a gate that ended the seed: that names no stage.

    An earlier life under the same id had another end.
    """
    told = (each.detail for each in moments if each.step == step and (each.stage in GONE or not each.stage))
    return next(filter(None, told), "")


def culled_by(picture: Picture, seed_id: str, step: int) -> str:
    """Which command culled it, where commands can be read; of one at which its gate did, the gate says more."""
    for order in reversed(picture.orders.newest):
        ends = (answer for answer in order.outcomes.values() if answer.step == step and answer.stage in GONE)
        if order.seed_id == seed_id and order.refusal is None and any(ends):
            return f"by command {order.command_id} of {order.producer}"
    return ""
