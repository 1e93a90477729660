"""A teacher is taken by all ranks before the same step, or by none, and dropped by all alike."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from esper.leyline import contracts as pb
from esper.tolaria.teachers.teachers import ELSEWHERE, WITHOUT, Teachers, TeacherSource
from tests.rank_kit import Ranks
from tests.teacher_kit import Professor, Slow, Starved, Told, professor, questions, saved

APPLIED, FAILED = pb.ReceiptStatus.RECEIPT_APPLIED, pb.ReceiptStatus.RECEIPT_FAILED


def ranks_of(directories: list[Path], told: list[Told], **fields: object) -> tuple[Ranks, list[Teachers]]:
    ranks = Ranks(len(directories))
    held = []
    for rank, directory in enumerate(directories):
        source = TeacherSource(**{"directory": directory, "factory": Professor, **fields})  # type: ignore[arg-type]
        held.append(Teachers(source, tell=told[rank], agree=ranks.agree(rank)))
    return ranks, held


def test_two_ranks_take_a_teacher_before_the_same_step_though_one_has_it_earlier(tmp_path: Path) -> None:
    Slow.may_answer.clear()
    _, digest = saved(professor(), tmp_path)
    told = [Told(), Told()]
    ranks, (quick, slow) = ranks_of([tmp_path, tmp_path], told)
    slow.source = TeacherSource(tmp_path, Slow, sample=questions(4))
    for each in (quick, slow):
        each.begin(digest, 8)
    quick.wait()

    early = ranks.all([partial(each.settle, 9) for each in (quick, slow)])
    waiting = quick.has_news, quick.current, slow.current
    Slow.may_answer.set()
    slow.wait()
    late = ranks.all([partial(each.settle, 17) for each in (quick, slow)])

    assert early == [None, None] and waiting == (False, None, None)
    assert [None if each is None else each.status for each in late] == [APPLIED, APPLIED]
    assert [each.events[-1][2]["step"] for each in told] == ["17", "17"]
    assert all(each.current is not None and each.current.digest == digest for each in (quick, slow))


def test_where_one_rank_has_no_such_file_none_takes_it_and_each_says_why(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    _, digest = saved(professor(), here)
    told = [Told(), Told()]
    ranks, held = ranks_of([here, elsewhere], told)
    for each in held:
        each.begin(digest, 8)
        each.wait()

    found = ranks.all([partial(each.settle, 9) for each in held])

    assert [None if each is None else each.status for each in found] == [FAILED, FAILED]
    assert found[0] is not None and found[0].detail == ELSEWHERE
    assert found[1] is not None and "there: none" in found[1].detail
    assert [each.current for each in held] == [None, None] and [each.names for each in told] == [
        ["teacher.refused"]
    ] * 2


@pytest.mark.parametrize("in_use", [True, False])
def test_ranks_go_on_from_a_checkpoint_with_one_teacher_though_one_has_none_of_those_on_their_way(
    in_use: bool, tmp_path: Path
) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    (_, second), (_, first) = saved(professor(1), here), saved(professor(0), elsewhere)
    saved(professor(0), here)
    told = [Told(), Told()]
    ranks, held = ranks_of([here, elsewhere], told)
    state = {"digest": first if in_use else "", "pending": [second, "f" * 64]}

    ranks.all([partial(each.load_state_dict, state) for each in held])

    digests = ["" if each.current is None else each.current.digest for each in held]
    assert digests == [first if in_use else ""] * 2
    assert [each.names.count("teacher.refused") for each in told] == [2, 2]
    assert [each.by_chance for each in held] == [WITHOUT, WITHOUT]


def test_what_one_rank_drops_all_go_on_without_from_the_same_step(tmp_path: Path) -> None:
    _, digest = saved(professor(), tmp_path)
    told = [Told(), Told()]
    ranks, held = ranks_of([tmp_path, tmp_path], told)
    held[1].source = TeacherSource(tmp_path, Starved)
    for each in held:
        each.register(digest, 1)
    logits = [each.predict(questions()) for each in held]
    between = held[0].current
    news = [each.has_news for each in held]

    ranks.all([partial(each.settle, 9) for each in held])

    assert logits[0] is not None and logits[1] is None and between is not None and news[1]
    assert [each.current for each in held] == [None, None]
    assert told[0].events[-1][1:] == ("teacher.dropped", {"digest": digest, "reason": "another rank has dropped it"})
