"""A rank that makes checkpoints and goes back to one, killed between any two things that it does to files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from tests.checkpoint_kit import Training, put, store_at
from tests.effect_kit import Work, every_crash
from tests.seed_kit import equal

KEPT, LATER, BEHIND = 5, 9, 12
"""Before these steps stand the checkpoint that is gone back to, the one undone, and the one made after that."""


def test_a_checkpoint_is_there_or_the_one_before_it(tmp_path: Path) -> None:
    def made(number: int) -> Work:
        store = store_at(tmp_path / str(number), keep=2)
        for step in (1, 2):
            put(store, step)

        def work(begin: Callable[[], None]) -> None:
            begin()
            put(store, 3)

        return work

    met = []
    for number in every_crash(made):
        store = store_at(tmp_path / str(number), keep=2)
        met.append(store.newest()[0].step)
        named = store.folder / (store.folder / "latest").read_text()
        assert named in store.paths()

        put(store, 4)
        assert [store.read(path)[0].place.step for path in store.paths()] == [4, met[-1]]
        assert not list(store.folder.glob(".aside-*"))
    assert met == sorted(met) and set(met) == {2, 3}


def test_a_rollback_has_been_or_has_not(tmp_path: Path) -> None:
    def begun(number: int) -> Work:
        def work(begin: Callable[[], None]) -> None:
            run = Training(tmp_path / str(number), every=4)
            run.train(BEHIND - 1)
            begin()
            run.roll_back(KEPT)
            run.checkpoints.at_boundary(BEHIND, 0)

        return work

    states = {step: trained_to(step, tmp_path / f"to-{step}") for step in (KEPT, LATER)}
    met = []
    for number in every_crash(begun):
        again = Training(tmp_path / str(number))
        place = again.checkpoints.resume()
        assert place is not None
        met.append(place.step)
        assert equal(again.everything(), states[LATER if place.step == LATER else KEPT]), f"before effect {number}"
    assert list(dict.fromkeys(met)) == [LATER, KEPT, BEHIND]
    assert met == sorted(met, key=[LATER, KEPT, BEHIND].index)


def trained_to(step: int, folder: Path) -> dict[str, Tensor]:
    run = Training(folder)
    run.train(step - 1)
    return run.everything()
