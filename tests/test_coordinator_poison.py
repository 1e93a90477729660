"""A command that waits through coordinators that die of other things takes effect; one that kills them is set aside."""

from __future__ import annotations

import pytest

from esper.bus import names
from esper.bus.group.delivery import MAX_ATTEMPTS
from esper.leyline import contracts as pb
from esper.leyline.seal import Opened
from esper.runtime.coordinator.loop import CoordinatorLoop
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.outcome import Entry, Outcome
from tests.bus_kit import drain, num_pending
from tests.coordinator_kit import KilledError, Run, killed_before_settling, run, step_until_idle
from tests.rounds import germinate, heartbeat, vote

__all__ = ["run"]
NUM_DEATHS = 12


class Mortal(Coordinator):
    """Dies of one command: when it is handed over, or once the votes are in that have it judged; or between two."""

    def __init__(self, dies_of: str, when: str) -> None:
        super().__init__("coordinator")
        self.dies_of, self.when, self._waits = dies_of, when, False

    def on_command(self, stream: str, opened: Opened, now_ns: int = 0) -> Outcome:
        kills = isinstance(opened.message, pb.AdaptationCommand) and opened.message.command_id == self.dies_of
        if kills and self.when == "handed over":
            raise KilledError
        self._waits |= kills
        return super().on_command(stream, opened, now_ns)

    def on_vote(self, given: pb.BarrierVote, entry: Entry, now_ns: int) -> Outcome:
        outcome = super().on_vote(given, entry, now_ns)
        if self.when == "between votes" and self.barrier is not None and len(self.barrier.missing) == 1:
            raise KilledError
        if self._waits and any(isinstance(said, pb.BarrierCommit) for said in outcome.decisions):
            raise KilledError
        return outcome


async def mortal(run: Run, when: str) -> CoordinatorLoop:
    coordinating = await run.coordinator()
    coordinating.rule = Mortal("s0-1", when)
    await coordinating.resume()
    return coordinating


async def decided_at_last(run: Run, number: int = 1) -> None:
    """By a coordinator that lives, in the round of this number."""
    coordinating = await run.coordinator()
    await run.put("heartbeats", heartbeat(0), heartbeat(1))
    await step_until_idle(coordinating)
    await run.put("votes", vote(0, number=number), vote(1, number=number))
    await step_until_idle(coordinating)


async def test_a_command_held_across_a_dozen_failovers_takes_effect_at_last(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    await run.put("heartbeats", heartbeat(0))  # the other rank is away: no round can be opened
    for _ in range(NUM_DEATHS):
        await step_until_idle(await run.coordinator())

    await decided_at_last(run)

    assert await run.decisions() == ["Proposal 1", "Commit 1"]
    assert await run.receipts() == [("s0-1", entry, "NONE")]
    assert not await run.redis.exists(names.key(run.run_id, "dead"))


async def test_also_one_that_many_votes_came_in_beside(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    for number in range(1, NUM_DEATHS):
        coordinating = await run.coordinator()
        await run.put("heartbeats", heartbeat(0), heartbeat(1))
        await step_until_idle(coordinating)
        await run.put("votes", vote(0, number=number))
        await step_until_idle(coordinating)  # and dies while the other vote is awaited

    await decided_at_last(run, NUM_DEATHS)

    assert await run.receipts() == [("s0-1", entry, "NONE")]
    assert await num_pending(run.redis, names.key(run.run_id, "commands"), "coordinator") == 0


async def test_also_one_whose_coordinators_die_between_two_votes(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    for number in range(1, NUM_DEATHS):
        coordinating = await mortal(run, "between votes")
        await run.put("heartbeats", heartbeat(0), heartbeat(1))
        await step_until_idle(coordinating)
        await run.put("votes", vote(0, number=number))
        with pytest.raises(KilledError):
            await step_until_idle(coordinating)

    await decided_at_last(run, NUM_DEATHS)

    assert await run.receipts() == [("s0-1", entry, "NONE")]


async def test_also_one_that_coordinators_die_beside_before_they_answer_it(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    for _ in range(NUM_DEATHS):
        assert [each.entry_id for each in await drain((await run.coordinator()).inboxes["commands"])] == [entry]

    await decided_at_last(run)

    assert await run.receipts() == [("s0-1", entry, "NONE")]


async def test_also_one_whose_coordinators_die_once_it_was_judged(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    for number in range(1, NUM_DEATHS):
        coordinating = await run.coordinator()
        await run.put("heartbeats", heartbeat(0), heartbeat(1))
        await step_until_idle(coordinating)
        await run.put("votes", vote(0, number=number), vote(1, number=number))
        await killed_before_settling(coordinating)

    await decided_at_last(run, NUM_DEATHS)

    assert await run.receipts() == [("s0-1", entry, "NONE")]


@pytest.mark.parametrize("when", ["handed over", "judged"])
async def test_one_that_kills_its_coordinator_is_set_aside_after_five_deaths(run: Run, when: str) -> None:
    [entry] = await run.put("commands", germinate())
    num_deaths, is_over = 0, False

    while not is_over:
        try:
            coordinating = await mortal(run, when)
            await run.put("heartbeats", heartbeat(0), heartbeat(1))
            await step_until_idle(coordinating)
            assert isinstance(coordinating.rule, Mortal)
            barrier = coordinating.rule.barrier
            if barrier is not None and barrier.is_open:
                asked = [vote(rank, number=barrier.round, generation=barrier.generation) for rank in range(2)]
                await run.put("votes", *asked)
                await step_until_idle(coordinating)
            is_over = True
        except KilledError:
            num_deaths += 1

    assert num_deaths == 5
    assert await run.receipts() == [("", entry, "POISON")]
    [(_, letter)] = await run.redis.execute_command("XRANGE", names.key(run.run_id, "dead"), "-", "+")
    assert letter[b"entry_id"] == entry.encode()


async def test_nobody_is_handed_it_any_more_though_one_dies_as_it_sets_it_aside(run: Run) -> None:
    [entry] = await run.put("commands", germinate())
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(KilledError):
            await step_until_idle(await mortal(run, "handed over"))
    await killed_before_settling(await run.coordinator(), "commands")

    await step_until_idle(await mortal(run, "handed over"))

    assert await run.receipts() == [("", entry, "POISON")]
