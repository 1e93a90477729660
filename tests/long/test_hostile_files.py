"""The files that stand for malicious ones do run code where torch or pickle loads them, and none where Esper does."""

from __future__ import annotations

import io
import logging
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch._export.verifier import SpecViolationError

from esper.errors import CheckpointError, SettingError
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.tolaria.checkpoints.tree import unpack
from tests.checkpoint_kit import put, store_at
from tests.exported_files import exported
from tests.hostile_files import malicious
from tests.teacher_kit import professor

Run = Callable[[bytes], object]

NUM_PICKLES, NUM_ARCHIVES = 6, 2  # of malicious(), in this order
KINDS = [*(f"pickle {n}" for n in range(NUM_PICKLES)), "torch.save", "an archive", "sample inputs", "a pickled weight"]


def load(data: bytes) -> None:
    torch.load(io.BytesIO(data), weights_only=False)


def load_exported(data: bytes) -> None:
    """A trap is no weight, as torch says once it has run."""
    with warnings.catch_warnings(), suppress(SpecViolationError):
        warnings.simplefilter("ignore")
        torch.export.load(io.BytesIO(data))


def live(sentinel: Path, kind: str) -> tuple[bytes, Run]:
    """With what runs it."""
    number = KINDS.index(kind)
    if number < NUM_PICKLES:
        return malicious(sentinel)[number], pickle.loads
    if number < NUM_PICKLES + NUM_ARCHIVES:
        return malicious(sentinel)[number], load
    return exported(sentinel)[kind], load_exported


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_code_where_it_is_loaded_and_none_as_a_checkpoint_or_a_teacher(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # torch warns there with one argument less than its text has places, which pytest raises for.
    monkeypatch.setattr(logging.getLogger("torch._export.serde.serialize"), "disabled", True)
    sentinel, store = tmp_path / "ran", store_at(tmp_path / "kept")
    data, run = live(sentinel, kind)
    older, newer = put(store, 1), put(store, 2)

    for file in ("tensors.safetensors", "manifest.json", "manifest.sig"):
        whole = (newer.path / file).read_bytes()
        (newer.path / file).write_bytes(data)
        assert store.newest()[0] == older
        (newer.path / file).write_bytes(whole)
    with pytest.raises(CheckpointError):
        unpack({"w": {"$tensor": "w"}}, data)
    for suffix in (".pt2", ".pt", ".safetensors"):
        (tmp_path / f"teacher{suffix}").write_bytes(data)
        with pytest.raises(SettingError):
            CheckpointedTeacher(professor(), tmp_path / f"teacher{suffix}")
    assert not sentinel.exists()

    run(data)
    assert sentinel.exists()
