"""Seeds live and die by drawn orders in a loop that is drawn too, and whatever comes of them the host is as promised.

Until a seed has touched the output it trains as without Esper, bit for bit; a rollback and a checkpoint give back what
was, and the same acts come to the same again; each command is answered once; nothing is left of what was culled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
from structlog.testing import capture_logs

from tests.garden.habits import flatten
from tests.garden.life import Life
from tests.garden.loops import Loop
from tests.garden.manners import EIGHT_BITS, OPTIMIZERS, eight_bits
from tests.garden.marks import differing, of_model
from tests.garden.plan import Plan
from tests.grove import plan as grove

SEEDS = (58, 620, 3013, 7043, 110387, 232017, 310010, 310021, 400011, 510018, 530015, 532741, 540004)
"""Of those at which something was found once; `python -m tests.garden.run 0 300` tries others."""


def lived(seed: int, folder: Path) -> Life:
    life = Life(Plan.draw(seed), folder)
    with capture_logs():
        life.live()
    return life


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of the script's own, where it froze what is before
@pytest.mark.parametrize("seed", SEEDS)
def test_the_host_is_as_promised_whatever_is_ordered(seed: int, tmp_path: Path) -> None:
    lived(seed, tmp_path)


def test_germinations_are_refused_for_as_long_as_a_breaker_is_open(tmp_path: Path) -> None:
    fuses = lived(225888, tmp_path).watch.fuses

    assert fuses is not None and fuses.num_refused and fuses.num_full and fuses.num_filling


def test_a_life_is_the_same_each_time(tmp_path: Path) -> None:
    one, other = lived(7, tmp_path / "one"), lived(7, tmp_path / "other")

    assert [stage.sums for stage in one.course.stages] == [stage.sums for stage in other.course.stages]


def test_a_seed_is_the_same_life_whatever_else_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    draws: list[Callable[[int], object]] = [Plan.draw, grove.Plan.draw]
    monkeypatch.delitem(OPTIMIZERS, EIGHT_BITS, raising=False)
    without = [draw(seed) for draw in draws for seed in range(20)]

    monkeypatch.setitem(OPTIMIZERS, EIGHT_BITS, eight_bits)

    assert [draw(seed) for draw in draws for seed in range(20)] == without


def test_a_host_that_skips_a_layer_trains_without_a_session() -> None:
    plan = Plan.draw(530355)
    loop = Loop(plan.host, plan.manner)

    assert [loop.step(number) for number in range(1, 9)] == [""] * 8
    assert {*loop.optimizer.state} == {each for each in loop.host.parameters() if each.requires_grad}


def test_a_twin_lies_in_memory_as_its_host_does() -> None:
    plan = Plan.draw(530326)
    loop = Loop(plan.host, plan.manner)
    flatten(loop, Random(0))

    twin = loop.twin()

    places = [[each.storage_offset() for each in one.host.parameters()] for one in (loop, twin)]
    vectors = [{each.untyped_storage().data_ptr() for each in one.host.parameters()} for one in (loop, twin)]
    assert places[0] == places[1] and any(places[0])
    assert len(vectors[0]) == len(vectors[1]) == 1 and vectors[0] != vectors[1]
    assert not differing(of_model(loop), of_model(twin))


def test_what_is_no_number_is_told_from_a_number() -> None:
    values = {"a": torch.tensor([1.0, float("nan")])}

    assert not differing(values, {"a": torch.tensor([1.0, float("nan")])})
    assert differing(values, {"a": torch.tensor([1.0, 0.0])}) == ["a"]
