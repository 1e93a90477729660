"""Lines of a run's plots: in order, bounded, drawn anew where a process resumed, with the moments of grafts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Opened
from esper.view.curves import ALL_RANKS, BESIDE, GROWN, VALIDATION, Curves, Mark
from esper.view.line import Line
from esper.view.picture import Picture
from tests.sealed import NOW_MS, RUN
from tests.view_kit import Stage, Status, beat, command, receipt, said, seed

GERMINATE, FOSSILIZE = pb.SeedOperation.SEED_OP_GERMINATE, pb.SeedOperation.SEED_OP_FOSSILIZE


def test_a_line_keeps_its_ends_and_stays_even_however_long_it_gets() -> None:
    line = Line(most=100)
    for x in range(10_007):
        line.add(float(x), 2.0 * x)

    xs = [x for x, _ in line.points]

    assert 50 <= len(xs) <= 101 and xs[0] == 0 and xs[-1] == 10_006
    gaps = {second - first for first, second in pairwise(xs[:-1])}
    assert len(gaps) == 1
    assert all(y == 2 * x for x, y in line.points)


def test_what_was_added_since_is_said_once() -> None:
    line = Line()
    line.add(1.0, 1.0)
    line.add(2.0, float("nan"))

    assert line.fresh() == [(1.0, 1.0)]
    assert line.fresh() == []


def test_a_process_that_resumes_draws_its_steps_anew() -> None:
    curves = Curves()
    for step in (100, 200, 300):
        curves.note(beat("worker-0", step, step=step, loss=1.0 / step))
    curves.note(beat("worker-0", 400, step=150, loss=0.7, incarnation=8))
    curves.note(beat("worker-0", 500, step=160, loss=0.6, incarnation=8))

    assert curves.lines["loss"]["worker-0"].points == [(100, 0.01), (150, 0.7), (160, 0.6)]


def test_a_replica_that_begins_anew_takes_nothing_from_the_others() -> None:
    curves = Curves()
    for step in (100, 200, 300):
        curves.note(replica("worker-0", step, step))
        curves.note(replica("worker-1", step, step))
    curves.note(aggregate(350, 300, 0.5))
    curves.note(replica("worker-1", 400, 150, incarnation=8))
    curves.note(replica("worker-0", 400, 400))

    assert [x for x, _ in curves.lines["loss"]["worker-0"].points] == [100, 200, 300, 400]
    assert [x for x, _ in curves.lines["loss"]["worker-1"].points] == [100, 150]
    assert [x for x, _ in curves.lines["loss"][ALL_RANKS].points] == [300]
    assert [x for x, _ in curves.lines["alpha"]["s0"].points] == [100, 200, 300, 400]


def replica(worker: str, at_ms: int, step: int, incarnation: int = 7) -> Opened:
    """A heartbeat of one that is the whole of its world, while a seed is blended in."""
    shown = seed("s0", Stage.SEED_STAGE_BLENDING, stage_since_step=100, alpha=0.5)
    message = pb.Heartbeat(version=1, worker=worker, world_size=1, step=step, seeds=[shown], loss=0.5)
    message.time_ns, message.incarnation = (NOW_MS + at_ms) * 1_000_000, incarnation
    return said(Role.WORKER, worker, message, at_ms)


def test_the_alpha_of_a_new_seed_is_drawn_in_place_of_one_that_is_over() -> None:
    curves = Curves()
    for number in range(40):
        shown = seed(f"s{number}", Stage.SEED_STAGE_BLENDING, stage_since_step=10 * number, alpha=0.5)
        curves.note(beat("worker-0", 1_000 * number, shown, step=10 * number + 2))

    assert [*curves.lines["alpha"]] == [f"s{number}" for number in range(8, 40)]


def test_of_too_many_seeds_at_once_the_first_stay_drawn() -> None:
    curves = Curves()
    many = [seed(f"s{number:02}", Stage.SEED_STAGE_BLENDING, stage_since_step=10, alpha=0.5) for number in range(40)]
    for step in (20, 30, 40):
        curves.note(beat("worker-0", step, *many, step=step))

    assert [*curves.lines["alpha"]] == [f"s{number:02}" for number in range(32)]
    assert all(len(line.points) == 3 for line in curves.lines["alpha"].values())


def test_a_process_that_has_not_gone_back_to_its_checkpoint_yet_takes_nothing_away() -> None:
    curves = Curves()
    shown = seed("s0", Stage.SEED_STAGE_BLENDING, stage_since_step=100, alpha=0.5)
    for step in (100, 200, 300):
        curves.note(beat("worker-0", step, shown, step=step, loss=1.0 / step))
    curves.note(beat("worker-0", 400, step=1, loss=float("nan"), incarnation=8))
    before = list(curves.lines["loss"]["worker-0"].points)
    curves.note(beat("worker-0", 500, shown, step=250, loss=0.7, incarnation=8))

    assert before == [(100, 0.01), (200, 0.005), (300, 1.0 / 300)]
    assert curves.lines["loss"]["worker-0"].points == [(100, 0.01), (200, 0.005), (250, 0.7)]
    assert [x for x, _ in curves.lines["alpha"]["s0"].points] == [100, 200, 250]


def test_seeds_are_drawn_by_the_next_worker_once_the_first_is_silent() -> None:
    curves = Curves()
    for at_ms, worker in ((0, "worker-0"), (500, "worker-1"), (5_400, "worker-1"), (6_000, "worker-1")):
        shown = seed("s0", Stage.SEED_STAGE_BLENDING, stage_since_step=5, alpha=at_ms / 10_000)
        curves.note(beat(worker, at_ms, shown, step=10 + at_ms))

    assert curves.lines["alpha"]["s0"].points == [(10, 0.0), (5_410, 0.54), (6_010, 0.6)]


def aggregate(at_ms: int, step: int, loss: float, sequence: int = 1) -> Opened:
    statistics = pb.MetricStatistics(count=4, mean=loss, sum=4 * loss, min=loss, max=loss, last=loss)
    message = pb.AggregatedTelemetry(
        version=1, sequence=sequence, num_packets=64, num_messages=2, max_step=step, metrics={"loss": statistics}
    )
    return said(Role.GLOBAL, "global", message, at_ms)


def test_the_loss_of_all_ranks_goes_on_where_a_region_lags_behind() -> None:
    curves = Curves()
    for at_ms, step in ((0, 100), (400, 90), (1_000, 200), (2_500, 300)):
        curves.note(aggregate(at_ms, step, 0.5))

    assert [x for x, _ in curves.lines["loss"][ALL_RANKS].points] == [100, 200, 300]


def test_the_loss_of_all_ranks_is_drawn_however_many_ranks_there_are() -> None:
    curves = Curves()
    for rank in range(40):
        name = f"worker-{rank}"
        state = pb.SystemStatePacket(version=1, packet_id=f"{name}/1", global_step=100, training_loss=0.5)
        state.source_subsystem, state.validation_loss = name, float("nan") if rank < 39 else 0.75
        curves.note(said(Role.WORKER, name, state))
    curves.note(aggregate(0, 100, 0.5))

    assert 32 <= len(curves.lines["loss"]) <= 34
    assert curves.lines["loss"][ALL_RANKS].points == [(100, 0.5)]
    assert curves.lines["loss"][VALIDATION].points == [(100, 0.75)]


def test_a_rate_is_the_same_whether_all_aggregates_were_read_or_some_of_them() -> None:
    whole, some = Curves(), Curves()
    for number in range(1, 401):  # ten a second, of 64 packets each
        told = aggregate(100 * number, number, 0.5, number)
        whole.note(told)
        if number % 20 == 1:
            some.note(told)
        if number == 300:
            whole.note(aggregate(100, 1, 0.5, 1))  # read again

    for curves in (whole, some):
        rates = [y for _, y in curves.lines["rate"]["packets"].points]
        assert len(rates) > 15 and rates == [pytest.approx(640.0)] * len(rates)


def test_a_graft_is_marked_once_whoever_tells_of_it_first() -> None:
    curves = Curves()
    shown = seed("s0", Stage.SEED_STAGE_BLENDING, stage_since_step=108, alpha=0.5)
    curves.note(beat("worker-0", 0, shown, step=120))
    curves.note(beat("worker-1", 0, shown, step=121))
    curves.note_outcome("s0", outcome(Stage.SEED_STAGE_BLENDING, 108))
    curves.note_outcome("s0", outcome(Stage.SEED_STAGE_EMBARGOED, 300))
    curves.note_outcome("s0", outcome(Stage.SEED_STAGE_TRAINING, 60))

    assert curves.marks == [Mark(108, "s0", "BLENDING"), Mark(300, "s0", "CULLED")]
    assert curves.lines["alpha"]["s0"].points == [(120, 0.5)]


def outcome(stage: pb.SeedLifecycleStage, step: int, **evidence: float) -> pb.CommandReceipt:
    return pb.CommandReceipt(
        status=Status.RECEIPT_APPLIED, worker="worker-0", stage=stage, step=step, evidence=evidence
    )


def test_growth_is_what_g0_measured_beside_the_model_and_then_in_it() -> None:
    picture, curves = Picture(RUN), Curves()
    born = command("c1", 0, GERMINATE, "s0", "head")
    told = [
        born,
        receipt(born, "worker-0", 1, Status.RECEIPT_APPLIED, step=10, stage=Stage.SEED_STAGE_GERMINATED, evidence=SIZE),
        kept := command("c2", 2, FOSSILIZE, "s0"),
        receipt(kept, "worker-0", 3, Status.RECEIPT_APPLIED, step=90, stage=Stage.SEED_STAGE_FOSSILIZED),
    ]
    for each in told:
        picture.note(each)
        curves.note(each)
    for order in picture.orders.newest:
        curves.note_order(order)

    assert curves.lines["growth"][BESIDE].points == [(10, 4096.0), (90, 0.0)]
    assert curves.lines["growth"][GROWN].points == [(10, 0.0), (90, 4096.0)]


SIZE = {"seed_bytes": 4096.0}
