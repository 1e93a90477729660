"""Numbers with no room above them, sealed with a key of the run, stop no leader without a word."""

from __future__ import annotations

from typing import Any

import pytest

from esper.bus import names
from esper.errors import SpentError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Sealer
from esper.leyline.succession import LAST, LAST_GENERATION, MOST, MOST_GENERATION, Said
from tests.coordinator_kit import Run, proposal, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]


async def say(run: Run, said: Said) -> None:
    """As whoever has the coordinator's key."""
    keys = run.master.derive(run.run_id, [Role.COORDINATOR])
    run.sealers["decisions"] = Sealer(keys, Role.COORDINATOR, "coordinator")
    await run.put("decisions", said)


async def led(run: Run, command: pb.AdaptationCommand) -> None:
    """A coordinator begins, and hears ranks that were started with it."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", command)
    await step_until_idle(coordinating)


@pytest.mark.parametrize(
    "numbers", [{"round": 2**64 - 1}, {"roster_generation": 2**32 - 1}, {"lease_token": 2**64 - 1}], ids=str
)
async def test_a_leader_passes_over_a_decision_whose_number_no_decision_may_have(
    run: Run, numbers: dict[str, Any]
) -> None:
    absurd = proposal(1, 1)
    for name, number in numbers.items():
        setattr(absurd, name, number)
    await say(run, absurd)
    coordinating = await run.coordinator()

    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinating)
    await run.put("votes", vote(0), vote(1))
    await step_until_idle(coordinating)

    num_said = await run.redis.xlen(names.key(run.run_id, "decisions"))
    assert num_said == 4  # the absurd one, who leads, what is proposed, what is committed


@pytest.mark.parametrize(
    ("name", "number"), [("round", LAST), ("roster_generation", LAST_GENERATION), ("lease_token", LAST)]
)
async def test_a_leader_that_finds_the_last_number_names_it_and_leads_once_the_stream_is_gone(
    run: Run, name: str, number: int
) -> None:
    last = proposal(1, 1)
    setattr(last, name, number)
    await say(run, last)

    with pytest.raises(SpentError, match=f"{name} {number} is on record.* delete its stream of decisions"):
        await led(run, germinate())
    await run.redis.delete(names.key(run.run_id, "decisions"))
    await led(run, germinate("s1", site="hidden"))

    assert (await run.decisions())[-1].startswith("Proposal")


async def test_a_rank_that_says_it_met_the_last_numbers_takes_no_room_from_those_that_tell_the_truth(run: Run) -> None:
    coordinating = await run.coordinator()
    liar = heartbeat(0)
    liar.lease_token = liar.round_met = LAST
    liar.roster_generation = LAST_GENERATION
    await run.put("heartbeats", liar, heartbeat(1))
    await run.put("commands", germinate())
    await step_until_idle(coordinating)

    [*_, asked] = await run.said("decisions", Domain.DECISION)
    assert isinstance(asked, pb.BarrierProposal)
    assert (asked.round, asked.roster_generation) == (MOST + 1_001, MOST_GENERATION + 1)
    assert asked.lease_token == MOST + 1
    honest = heartbeat(1)
    honest.lease_token, honest.round_met, honest.roster_generation = MOST + 1, asked.round, asked.roster_generation
    await run.put("heartbeats", honest)
    await step_until_idle(coordinating)
    votes = [vote(rank, number=asked.round, generation=asked.roster_generation) for rank in (0, 1)]
    await run.put("votes", *votes)
    await step_until_idle(coordinating)

    assert (await run.decisions())[-1] == f"Commit {asked.round}"
    assert await run.redis.xlen(names.key(run.run_id, "dead")) == 0
