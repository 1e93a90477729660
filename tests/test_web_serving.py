"""A site beside a real Redis: what was said before it began, what comes, and what nobody takes."""

from __future__ import annotations

import asyncio

from esper.bus import names
from esper.bus.publisher import Publisher
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime.watching.live import reach
from esper.web.serving import site_of, tell
from tests.rounds import seed_command
from tests.scripted import ScriptedRun, applied, cancelled, seed_state
from tests.web_kit import events, give_observer

BLENDING = pb.SeedLifecycleStage.SEED_STAGE_BLENDING


def state(epoch: int) -> pb.SystemStatePacket:
    """Of worker-0, ten steps an epoch."""
    return pb.SystemStatePacket(
        version=1,
        packet_id=f"worker-0/{epoch}",
        current_epoch=epoch,
        global_step=10 * epoch,
        training_loss=1 / epoch,
        source_subsystem="worker-0",
        seed_states=[pb.SeedState(seed_id="s0", stage=BLENDING, alpha=epoch / 8, stage_since_step=10)],
    )


async def test_a_page_begins_with_what_was_said_before_it_and_is_told_what_comes(run: ScriptedRun) -> None:
    give_observer(run)
    for epoch in (1, 2, 4):
        await run.say("state", Role.WORKER, "worker-0", state(epoch))
    await Publisher(run.redis).add(names.key(run.run_id, "commands"), b"junk that nobody has sealed")
    async with site_of(await reach(run.name)) as (site, watch):
        whole = site.board.everything()
        frames = site.feed.subscribe().frames()
        telling = asyncio.create_task(tell(site, watch))
        await anext(frames)
        await run.beat(1, seed_state("s0", BLENDING))
        said = [*events(await anext(frames)), *events(await anext(frames))]
        while not any("seeds" in content for _, _, content in said):
            said += events(await anext(frames))
        await cancelled(telling)

    assert "beside the model" not in whole["lines"]["growth"]  # nobody has told what the seed weighs
    assert whole["lines"]["loss"]["worker-0"] == [[10, 20, 40], [1, 0.5, 0.25]]
    assert whole["lines"]["alpha"]["s0"] == [[10, 20, 40], [0.125, 0.25, 0.5]]
    assert whole["marks"] == [{"step": 10, "seed": "s0", "stage": "BLENDING"}]
    assert [row["what"] for row in whole["rows"]] == ["malformed"]
    told = {name: section for _, _, content in said for name, section in content.items()}
    assert [seed["id"] for seed in told["seeds"]] == ["s0"]
    assert told["lines"]["loss"]["worker-0"] == [[100], [0.5]]


async def test_a_page_that_begins_late_shows_what_seeds_weighed_from_their_germination_on(run: ScriptedRun) -> None:
    give_observer(run)
    asked = seed_command(pb.SeedOperation.SEED_OP_GERMINATE, site="head", blueprint="mlp")
    answer = applied(asked.command_id, await run.say("commands", Role.CONTROLLER, "c", asked), "worker-0")
    answer.step, answer.stage, answer.evidence["seed_bytes"] = 5, BLENDING, 4096.0
    await run.answer(answer)
    for epoch in (1, 2, 4):
        await run.say("state", Role.WORKER, "worker-0", state(epoch))

    async with site_of(await reach(run.name)) as (site, _):
        growth = site.board.everything()["lines"]["growth"]["beside the model"]

    assert growth == [[5, 10, 20, 40], [4096.0] * 4]
