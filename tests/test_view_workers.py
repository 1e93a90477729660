"""Workers as a picture shows them: how fast they go, how many they are, and when they are over."""

from __future__ import annotations

import pytest

from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from esper.top.board import ViewState, board
from esper.view.picture import Picture
from esper.web import document
from tests.sealed import MASTER, NOW_MS, RUN
from tests.view_kit import OPENER, WORKERS, beat, said


def test_a_worker_is_as_fast_as_its_newest_ten_seconds() -> None:
    picture = Picture(RUN)
    for second in range(30):
        step = 100 * second if second < 15 else 1_500 + 10 * (second - 15)
        picture.note(beat("worker-0", 1_000 * second, step=step, examples=32 * step))

    worker = picture.workers.by_name["worker-0"]

    assert worker.steps_per_s(picture.now_ms) == pytest.approx(10.0)
    assert worker.samples_per_s(picture.now_ms) == pytest.approx(320.0)


@pytest.mark.parametrize(("later_ms", "repeats"), [(6_000, False), (11_000, True)])
def test_one_that_is_gone_or_long_inside_a_step_has_no_speed(later_ms: int, repeats: bool) -> None:
    picture = Picture(RUN)
    for second in range(3):
        picture.note(beat("worker-0", 1_000 * second, step=100 + second, examples=second + 1))
    if repeats:
        picture.note(beat("worker-0", 2_000 + later_ms, step=102, examples=3, repeated=True))
    worker = picture.workers.by_name["worker-0"]
    before = worker.steps_per_s(picture.now_ms if not repeats else NOW_MS + 3_000)
    picture.tick(NOW_MS + 2_000 + later_ms)

    assert before == pytest.approx(1.0)
    assert worker.state(picture.now_ms) == ("away" if repeats else "silent")
    assert worker.steps_per_s(picture.now_ms) is None and worker.samples_per_s(picture.now_ms) is None


def test_a_run_is_over_once_all_have_ended_that_were_not_sent_away() -> None:
    picture = Picture(RUN)
    for worker in WORKERS:
        picture.note(beat(worker, 0, step=5))
    abort = pb.BarrierAbort(version=1, round=1, reason=pb.ReasonCode.REASON_TIMEOUT, lease_token=1)
    abort.evicted.add(worker="worker-1", incarnation=7)
    picture.note(said(Role.COORDINATOR, "coordinator", abort, 1))
    before = picture.workers.are_done
    picture.note(beat("worker-0", 2, step=9, report=pb.WorkerReport(worker="worker-0", steps=9)))

    assert (before, picture.workers.are_done) == (False, True)


def test_replicas_are_counted_though_each_is_a_world_of_its_own() -> None:
    picture = Picture(RUN)
    for name in ("left", "middle", "right"):
        message = pb.Heartbeat(version=1, worker=name, world_size=1, time_ns=NOW_MS * 1_000_000, step=5)
        picture.note(said(Role.WORKER, name, message))

    assert picture.workers.world_size == 3


def test_a_worker_whose_clock_is_set_back_is_not_silent() -> None:
    picture, keys = Picture(RUN), MASTER.derive(RUN, [Role.WORKER])
    clock = iter(range(NOW_MS, NOW_MS + 10_000, 1_000))
    sealer = Sealer(keys, Role.WORKER, "worker-0", clock_ns=lambda: next(clock) * 1_000_000)
    told = []
    for second in range(10):
        behind_ms = 30_000 if second >= 5 else 0
        message = beat("worker-0", 1_000 * second - behind_ms, step=100 + 10 * second).message
        entry_ms = NOW_MS + 1_000 * second
        told.append(OPENER.open(sealer.seal(message), f"{entry_ms}-0", entry_ms))
    for each in (*told, told[3]):  # the last is a copy of an old one
        picture.note(each)
    worker = picture.workers.by_name["worker-0"]

    assert worker.beat.step == 190 and worker.state(picture.now_ms) == "training"
    assert worker.steps_per_s(picture.now_ms) == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("silent", "doing"), [((), "running"), (("worker-1",), "running, 1 SILENT"), (WORKERS, "2 SILENT")]
)
def test_how_many_workers_are_silent_is_told_at_the_top(silent: tuple[str, ...], doing: str) -> None:
    picture = Picture(RUN)
    for worker in WORKERS:
        picture.note(beat(worker, 0 if worker in silent else 6_000))
    picture.tick(NOW_MS + 6_000)

    told = document.head(picture)

    assert (told["troubled"], told["known"]) == ({"silent": len(silent)} if silent else {}, 2)
    assert f"  {doing}  2/2 workers" in board(picture, ViewState(80, 24))[0].text


@pytest.mark.parametrize("width", [80, 100])
def test_a_loss_is_shown_whole_with_sign_and_exponent(width: int) -> None:
    picture = Picture(RUN)
    picture.note(beat("worker-0", 0, step=5, loss=-7.7284e-05))

    [line] = [line.text for line in board(picture, ViewState(width, 24)) if "worker-0" in line.text]

    assert "-7.728e-05" in line.split() and len(line) <= width
