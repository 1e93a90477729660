"""What a rollback undid is never taken up again, whenever the process ends."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.disk import put_file
from esper.tolaria.checkpoints.undone import FILE
from tests.checkpoint_kit import Training, resumed, store_at
from tests.hostile_files import num_open
from tests.seed_kit import equal


def killed_after(work: Callable[[], None]) -> None:
    """Do this in a process of its own, which is killed as soon as it is done."""
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        try:
            work()
            os.write(tell, b"done")
            signal.pause()
        finally:
            os._exit(3)
    os.close(tell)
    with open(told, "rb", buffering=0) as pipe:
        said = pipe.read(4)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert said == b"done"


def gone_back(folder: Path, after: int) -> Training:
    """Trained for so many steps after a snapshot before step 7, and rolled back to it."""
    run = Training(folder, every=4)
    run.train(6)
    run.states.take(run.step)
    run.train(after)
    run.roll_back(7)
    return run


def test_killed_between_a_rollback_and_the_next_checkpoint_it_resumes_from_what_was_restored(tmp_path: Path) -> None:
    def work() -> None:
        run = Training(tmp_path)
        for _ in range(3):
            run.train(4)
            run.checkpoints.save(run.step)
        run.train(2)
        run.roll_back(5)
        run.train(1)

    reference = Training(tmp_path / "beside")
    reference.train(4)

    killed_after(work)
    again = resumed(tmp_path)

    assert again.step == 5
    assert equal(again.everything(), reference.everything())


def test_gone_back_to_memory_it_resumes_from_a_checkpoint_before_it(tmp_path: Path) -> None:
    def work() -> None:
        gone_back(tmp_path, after=4)

    killed_after(work)

    assert resumed(tmp_path).step == 5


def test_a_checkpoint_follows_a_rollback_at_once(tmp_path: Path) -> None:
    def work() -> None:
        run = gone_back(tmp_path, after=5)
        run.checkpoints.at_boundary(run.step, 0)

    reference = Training(tmp_path / "beside")
    reference.train(6)

    killed_after(work)
    again = resumed(tmp_path)

    assert again.step == 12
    assert equal(again.everything(), reference.everything())


def test_what_another_rank_lacks_is_not_taken_up_in_a_later_course(tmp_path: Path) -> None:
    run = Training(tmp_path)
    for _ in range(2):
        run.train(2)
        run.checkpoints.save(run.step)
    newest = run.checkpoints.store.paths()[0] / "manifest.json"
    whole = newest.read_bytes()
    newest.write_bytes(b"{}")
    assert resumed(tmp_path).step == 3

    newest.write_bytes(whole)

    assert resumed(tmp_path).step == 3


def test_what_was_undone_displaces_no_checkpoint_that_stands(tmp_path: Path) -> None:
    run = Training(tmp_path, keep=2)
    for _ in range(3):
        run.train(1)
        run.checkpoints.save(run.step)
    run.roll_back(3)
    run.train(1)
    run.checkpoints.save(run.step)

    store = run.checkpoints.store
    assert [store.manifest(path).place.step for path in store.standing()] == [5, 3]


def test_a_clock_that_is_put_back_undoes_nothing_that_comes_after(tmp_path: Path) -> None:
    now_ns = time.time_ns()
    times = iter([now_ns + 9_000, now_ns + 5_000, now_ns + 6_000])
    run = Training(tmp_path, clock_ns=lambda: next(times))
    run.train(4)
    run.checkpoints.save(run.step)
    run.checkpoints.undo(2, 5)
    run.checkpoints.save(6)

    assert [store_at(tmp_path).manifest(path).place.step for path in store_at(tmp_path).standing()] == [6]


@pytest.mark.parametrize("spoil", [lambda raw: raw[:-1], lambda raw: raw[:10], lambda raw: raw[:80] + b"!" + raw[81:]])
def test_a_record_that_does_not_verify_is_resumed_past_by_nobody(
    tmp_path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    run = Training(tmp_path)
    run.train(2)
    run.checkpoints.save(run.step)
    run.train(2)
    run.checkpoints.save(run.step)
    run.roll_back(3)
    record = tmp_path / FILE
    put_file(record, spoil(record.read_bytes()))

    with pytest.raises(CheckpointError, match=r"none can be resumed from: .*undone"):
        Training(tmp_path).checkpoints.resume()


def test_a_disk_that_refuses_the_record_keeps_what_was_undone_out_of_sight(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.train(2)
    run.checkpoints.save(run.step)
    run.train(2)
    run.checkpoints.save(run.step)
    (tmp_path / FILE).mkdir()  # nothing can be renamed to its name

    run.checkpoints.undo(3, 5)

    assert run.checkpoints.num_failed == 1
    assert [path.name.split("-")[1].lstrip("0") for path in run.checkpoints.store.paths()] == ["3"]
    assert num_open(tmp_path / FILE) == 0
