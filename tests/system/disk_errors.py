"""Trains with checkpoints on a disk of which one call after the other fails; counts what it met. Run preloaded."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

import structlog
import torch

from tests.checkpoint_kit import Training

LATER = 400  # more calls of a kind than one checkpoint makes


def main(folder: Path, error: int) -> None:
    """In each trial the nth call fails while a checkpoint is made: the one before it loads, and training goes on."""
    torch.set_num_threads(1)
    os.environ["FAIL_UNDER"] = str(folder)
    run, met, events = Training(folder, every=1), Counter[str](), Counter[str]()
    structlog.configure(processors=[lambda _, __, line: _noted(events, line)])
    run.train(2)
    for call in ("write", "fsync"):
        for nth in range(1, LATER):
            os.environ["FAIL_AT"] = f"{call}:{nth}:{error}"
            if not _fails(run):
                break
            met[call] += 1
    _undo_unrecorded(run, folder, error)
    print(json.dumps({**met, "told": events["checkpoint.failed"], "failed": run.checkpoints.num_failed}))


def _fails(run: Training) -> bool:
    """Whether the checkpoint of the next step failed. What must hold then is asserted here."""
    store, before, weights = run.checkpoints.store, run.checkpoints.num_failed, run.everything()
    newest = store.newest()[0]
    run.train(1)
    os.environ["FAIL_AT"] = ""
    failed = run.checkpoints.num_failed > before
    assert any(not torch.equal(each, weights[name]) for name, each in run.everything().items())  # it trained on
    assert store.newest()[0] == (newest if failed else store.newest()[0])
    assert (run.checkpoints.store.folder / "latest").read_text() == store.newest()[0].path.name
    run.train(1)
    assert store.newest()[0].step == run.step - 1  # and the next one is made
    again = Training(store.folder)
    place = again.checkpoints.resume()
    assert place is not None and place.step == run.step - 1
    return failed


def _undo_unrecorded(run: Training, folder: Path, error: int) -> None:
    """A rollback of which the record can't be written: what it undid is out of sight all the same."""
    target = run.step - 2
    os.environ["FAIL_AT"] = f"fsync:1:{error}"
    run.checkpoints.undo(target, run.step)
    os.environ["FAIL_AT"] = ""
    place = Training(folder).checkpoints.resume()
    assert place is not None and place.step <= target, place


def _noted(events: Counter[str], line: structlog.typing.EventDict) -> str:
    events[str(line["event"])] += 1
    raise structlog.DropEvent


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
