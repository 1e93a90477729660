"""A step in which nothing is due does next to nothing, and nothing that comes or falls due is missed by it."""

from __future__ import annotations

import asyncio
import math
import select
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from esper.leyline import contracts as pb
from esper.runtime.beside.doorbell import mapped, new_doorbell
from esper.runtime.beside.lanes import Lanes
from esper.session import Session
from esper.session.exchange import FLUSH_S
from esper.tolaria.checkpoints.checkpoints import Checkpoints
from esper.tolaria.checkpoints.optimizers import OptimizerState
from esper.tolaria.checkpoints.rank import RankState
from esper.tolaria.checkpoints.tree import unpack
from esper.tolaria.fossils import FossilGradients
from tests.checkpoint_kit import signer, store_at
from tests.counted_kit import calls_in
from tests.link_kit import Unanswered
from tests.seed_kit import Host, Op, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, train, unsteered

QUIET = 40  # steps, of which none is a multiple of walk_every or BARRIER_STEPS
QUIET_CALLS = ["Session.step", "Step.__enter__", "Step.loss", "HostHooks._after", "Step.__exit__"]


def at_rest() -> tuple[Host, Session]:
    """A run whose next step begins with nothing to be done."""
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    run._beat_at = run.exchange.flush_at = math.inf  # by the clock nothing is, however slow the machine
    train(run, host, 4)
    return host, run


def turn(run: Session, host: Host) -> None:
    with run.step() as step:
        step.loss(backward(host, 1))
        run.optimizer.step()
        run.optimizer.zero_grad()


def test_a_quiet_step_calls_five_functions_of_ours() -> None:
    host, run = at_rest()

    called = calls_in(lambda: turn(run, host))

    assert called == QUIET_CALLS


def test_each_quiet_step_has_a_row_and_a_loss_that_seeds_are_judged_by() -> None:
    host, run = at_rest()
    losses = []
    for _ in range(QUIET):
        with run.step() as step:
            loss = backward(host, run.step_number)
            step.loss(loss)
            losses.append(loss.item())

    rows = run.status.rows
    tables = [table for table in iter(rows.table, None) if table is not None]
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"))
    train(run, host, 1)

    assert [step for table in tables for step in table.global_step] == list(range(1, QUIET + 5))
    assert [value for table in tables for value in list(table.values)[::3]][4:] == losses
    assert run.executor._losses.total == QUIET + 5
    assert run.executor._losses.values[4 : QUIET + 4].tolist() == losses


def test_a_note_goes_with_later_quiet_steps_and_not_with_earlier_ones() -> None:
    host, run = at_rest()
    while run.status.rows.table() is not None:
        pass
    train(run, host, 2)
    run.note(accuracy=0.5)
    train(run, host, 2)
    run.note(accuracy=0.75)
    train(run, host, 1)

    tables = [table for table in iter(run.status.rows.table, None) if table is not None]

    told = {
        step: dict(zip(table.names, list(table.values)[at * len(table.names) :], strict=False)).get("accuracy")
        for table in tables
        for at, step in enumerate(table.global_step)
    }
    assert told == {5: None, 6: None, 7: 0.5, 8: 0.5, 9: 0.75}


def test_what_is_decided_between_quiet_steps_takes_effect_before_the_next() -> None:
    host, run = at_rest()
    train(run, host, 3)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))

    train(run, host, 1)
    after_one = run.executor.seeds["s0"].meter.fits.total
    train(run, host, 2)

    assert (after_one, run.executor.seeds["s0"].meter.fits.total) == (1, 3)


def test_a_run_that_has_lost_its_last_seed_comes_to_rest_again() -> None:
    host, run = at_rest()
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), on_seed(Op.SEED_OP_START_TRAINING))
    train(run, host, 2)
    awake = calls_in(lambda: turn(run, host))
    order(run, on_seed(Op.SEED_OP_CULL))
    train(run, host, 3)

    resting = calls_in(lambda: turn(run, host))

    assert "Executor.begin_step" in awake
    assert resting == QUIET_CALLS


class Cut(list[float]):
    """Times of steps; Ctrl-C is pressed as the third comes."""

    def append(self, ended_s: float, /) -> None:
        super().append(ended_s)
        if len(self) == 3:
            raise KeyboardInterrupt


def test_ctrl_c_as_a_row_is_kept_leaves_each_row_its_own_step() -> None:
    host, run = at_rest()
    rows = run.status.rows
    rows.settle()
    rows.plain.ended_s = Cut()

    with pytest.raises(KeyboardInterrupt):
        train(run, host, 4)

    tables = [table for table in iter(rows.table, None) if table is not None]
    assert [step for table in tables for step in table.global_step] == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_saved_between_quiet_steps_has_all_that_are_over(tmp_path: Path) -> None:
    host, run = at_rest()
    state = RankState(
        host,
        OptimizerState(run.optimizers, run.optimizer, lambda: dict(host.named_parameters())),
        run.executor.durable(),
        FossilGradients(lambda flat: flat),
        None,
    )
    run.keep(Checkpoints(state, store_at(tmp_path), signer()))
    assert run.checkpoints is not None
    train(run, host, 4)

    saved, emergency = run.checkpoints.save(run.step_number), run.checkpoints.emergency("drill")

    store, last = run.checkpoints.store, run.step_number
    manifest, blob = store.read(saved)
    seeds = unpack(manifest.state, blob)["seeds"]
    assert (seeds["step"], seeds["losses"]["total"]) == (last, last - 1)
    assert store.manifest(emergency).place.step == last


class Ringing(Unanswered):
    """The trainer's end of a link that is looked at where it has rung, and counts how often."""

    def __init__(self) -> None:
        self.doorbell = bytearray(1)  # type: ignore[assignment]
        self.waiting: list[pb.ToTrainer] = []
        self.said: list[str | None] = []
        self.num_looks = 0

    def come(self, message: pb.ToTrainer) -> None:
        self.waiting.append(message)
        self.doorbell[0] = 1  # type: ignore[index]

    def poll(self, timeout_s: float = 0.0) -> list[pb.ToTrainer]:
        self.num_looks += 1
        self.doorbell[0] = 0  # type: ignore[index]
        came, self.waiting = self.waiting, []
        return came

    def send(self, message: pb.ToRuntime, timeout_s: float = 1.0) -> None:
        self.said.append(message.WhichOneof("message"))


def linked(link: Ringing) -> tuple[Host, Session]:
    host, run = at_rest()
    run.exchange.link, run._step.doorbell = link, link.doorbell
    run._step.look_at = math.inf
    return host, run


def test_the_link_is_looked_at_where_it_has_rung_and_not_in_other_quiet_steps() -> None:
    link = Ringing()
    host, run = linked(link)
    train(run, host, 3)
    assert link.num_looks == 0

    link.come(pb.ToTrainer(proposal=pb.BarrierProposal(round=1, roster_generation=1, roster=["worker-0"])))
    train(run, host, 1)

    assert link.said == ["vote"]


def test_steps_between_a_vote_and_what_is_decided_on_it_are_quiet() -> None:
    link = Ringing()
    host, run = linked(link)
    link.come(pb.ToTrainer(proposal=pb.BarrierProposal(round=1, roster_generation=1, roster=["worker-0"])))
    turn(run, host)
    promised = calls_in(lambda: turn(run, host))
    began = pb.BarrierCommit(version=1, round=1, effective_step=run.step_number + 5)
    link.come(pb.ToTrainer(commit=pb.CommitOrder(commit=began)))
    heard = calls_in(lambda: turn(run, host))
    until = [calls_in(lambda: turn(run, host)) for _ in range(4)]
    at_last = calls_in(lambda: turn(run, host))

    assert "Boundary.on_commit" in heard and "Boundary.applied" in at_last
    assert [promised, *until] == [QUIET_CALLS] * 5
    assert link.said == ["vote", "applied"]


def test_a_promise_is_kept_where_no_bell_rings() -> None:
    link = Ringing()
    host, run = linked(link)
    link.come(pb.ToTrainer(proposal=pb.BarrierProposal(round=1, roster_generation=1, roster=["worker-0"])))
    train(run, host, 8)
    looked = link.num_looks
    link.waiting.append(pb.ToTrainer(abort=pb.BarrierAbort(round=1)))
    train(run, host, 1)

    assert (looked, link.num_looks) == (1, 2)
    assert run.exchange.boundary.is_idle


def test_a_germination_heard_of_at_a_heartbeat_is_prepared_for_before_the_next_step() -> None:
    link = Ringing()
    host, run = linked(link)
    asked = pb.SeedCommand(operation=Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp", seed_id="s0")
    link.waiting.append(pb.ToTrainer(foreseen=asked))
    run._beat_at = run._step.look_at = 0.0

    train(run, host, 1)
    before = len(run.executor.kernels.pool)
    train(run, host, 1)

    assert (before, len(run.executor.kernels.pool)) == (0, 1)


def test_a_runtime_that_died_in_quiet_steps_is_started_anew_where_rows_are_handed_over() -> None:
    link = Ringing()
    host, run = linked(link)
    link.alive = False

    run._step.look_at = 0.0
    run.exchange.flush_at = FLUSH_S
    train(run, host, 1)

    assert link.num_starts == 2


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_bell_rings_once_the_message_is_there_and_not_for_rows_that_are_stored(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def tell() -> list[bool]:
        pairs, file = [socket.socketpair() for _ in range(2)], new_doorbell()
        lanes = await Lanes.adopt(pairs[0][1].detach(), pairs[1][1].detach(), file.fileno())
        doorbell, arrival, found = mapped(file.fileno()), select.poll(), []
        arrival.register(pairs[0][0], select.POLLIN)
        lanes.tell(pb.ToTrainer(rows_stored=pb.RowsStored(through_sequence=1)))
        for _ in range(5):
            await asyncio.sleep(0)
        found.append(bool(doorbell[0]))
        pairs[0][0].recv(1 << 16)
        for number in range(1, 20):
            lanes.tell(pb.ToTrainer(abort=pb.BarrierAbort(round=number)))
            while not doorbell[0]:
                await asyncio.sleep(0)
            doorbell[0] = 0
            found.append(bool(arrival.poll(0)))
            pairs[0][0].recv(1 << 16)
        await lanes.close()
        for ours, _ in pairs:
            ours.close()
        file.close()
        return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(tell()) == [False, *[True] * 19]
