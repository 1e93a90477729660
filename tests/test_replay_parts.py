"""What each rank alone holds of a split model is compared with what it held itself, and with no other rank's."""

from __future__ import annotations

import pytest

from esper.cli import replay
from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.validate.rounds import worker_report
from esper.leyline.validate.runs import run_began
from esper.runtime.history.decision_diff import divergence, history
from esper.runtime.history.logbook import opened
from esper.runtime.history.retrace import Life
from tests.log_kit import WORKERS, Writer, began, toy

WHOLE, STEPS = b"w" * 32, 9


def noted(*then_and_now: tuple[bytes, bytes], began_now: bytes = b"") -> replay.Result:
    """Of ranks that held these parts at their end and hold those in the replay."""
    result = replay.Result("toy", WHOLE.hex(), STEPS)
    for worker, (then, now) in zip(WORKERS, then_and_now, strict=False):
        report, held = (pb.WorkerReport(steps=STEPS, parameter_digest=WHOLE, part_digest=each) for each in (now, then))
        life = Life(pb.RunRecord(version=1), began(device="cpu"), pb.RunEnded(report=held))
        met = pb.ReplayReport(began=began(device="cpu", part_digest=began_now), report=report)
        replay._note(result, pb.ReplayPlan(worker=worker, last_step=STEPS), met, [life])
    return result


def ended(*parts: bytes) -> Writer:
    """A run of which each rank says that it held these."""
    writer = toy(ended=False)
    for rank, part in enumerate(parts):
        report = pb.WorkerReport(worker=WORKERS[rank], steps=40, parameter_digest=WHOLE, part_digest=part)
        writer.record(rank, ended=pb.RunEnded(report=report, round_applied=2))
    return writer


def test_ranks_that_hold_what_each_held_are_a_replay_though_they_differ() -> None:
    result = noted((b"1" * 32, b"1" * 32), (b"2" * 32, b"2" * 32))

    assert result.equal and not result.differences
    assert replay.told(result).endswith("parameters 7777777777777777 again, the ranks' parts again")


@pytest.mark.parametrize("now", [b"3" * 32, b""], ids=["another one", "none"])
def test_the_rank_that_holds_another_part_is_named(now: bytes) -> None:
    result = noted((b"1" * 32, b"1" * 32), (b"2" * 32, now))

    assert not result.equal
    lines = replay.told(result).splitlines()
    assert lines[0] == f"differs: {WORKERS[1]} holds other parts of what fully_shard has split"
    assert lines[1].startswith("run toy differs: ") and lines[1].endswith("7777777777777777 again, other parts")


def test_ranks_whose_parts_changed_places_are_no_replay() -> None:
    assert not noted((b"1" * 32, b"2" * 32), (b"2" * 32, b"1" * 32)).equal


def test_a_rank_that_began_with_another_part_is_told() -> None:
    result = noted((b"1" * 32, b"1" * 32), began_now=b"4" * 32)

    assert result.differences == [f"{WORKERS[0]} began with other parameters: is the script the same, and seeded?"]


def test_a_run_of_which_nothing_was_split_tells_of_no_parts() -> None:
    assert replay.told(noted((b"", b""))).endswith("parameters 7777777777777777 again")


def test_two_runs_part_where_a_rank_ends_with_another_part() -> None:
    one, other = (
        opened(each.book, each.keyring) for each in (ended(b"1" * 32, b"2" * 32), ended(b"1" * 32, b"3" * 32))
    )

    found = divergence(history(one), history(other))

    assert divergence(history(one), history(one)) is None
    assert found is not None and found.one is not None
    assert (found.one.what, found.differs_in) == ("rank 1 ends", "verdict")


def test_a_digest_of_parts_that_is_none_is_refused() -> None:
    worker_report(pb.WorkerReport(worker="worker-0", part_digest=WHOLE))

    with pytest.raises(RefusedError, match="part_digest"):
        worker_report(pb.WorkerReport(worker="worker-0", part_digest=b"short"))
    with pytest.raises(RefusedError, match="part_digest"):
        run_began(began(part_digest=b"short"))
