"""Files that would run code where they are loaded are refused, and run none, whoever has signed them."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.manifest import FULL, Manifest, Marks, Place, TensorMark
from esper.tolaria.checkpoints.tree import unpack
from tests.checkpoint_kit import RUN, put, signer, store_at
from tests.hostile_files import Trap, entry, malicious, safetensors

NUM_FILES = 20


@pytest.mark.parametrize("number", range(NUM_FILES))
def test_a_malicious_file_of_tensors_runs_no_code(tmp_path: Path, number: int) -> None:
    sentinel, store = tmp_path / "ran", store_at(tmp_path)
    files = malicious(sentinel)
    assert len(files) == NUM_FILES
    made = put(store, 1)
    (made.path / "tensors.safetensors").write_bytes(files[number])

    with pytest.raises(CheckpointError):
        store.read(made.path)
    with pytest.raises(CheckpointError):  # where its signer meant it, the parser refuses
        unpack({"w": {"$tensor": "w"}}, files[number])

    assert not sentinel.exists()


def test_a_manifest_that_is_a_pickle_runs_no_code(tmp_path: Path) -> None:
    sentinel, store = tmp_path / "ran", store_at(tmp_path)
    made = put(store, 1)
    for name in ("manifest.json", "manifest.sig"):
        (made.path / name).write_bytes(pickle.dumps(Trap(sentinel)))
        with pytest.raises(CheckpointError):
            store.read(made.path)

    assert not sentinel.exists()


def test_a_signed_tree_that_names_classes_makes_none(tmp_path: Path) -> None:
    place = Place(RUN, 1, time.time_ns())
    trees = [
        {"$wrapped": {"class": "Popen", "parts": {}, "rest": [], "shape": [1]}},
        {"$wrapped": {"class": "sparse", "parts": {}, "rest": [], "shape": [1]}},
        {"$wrapped": {"class": "sparse", "parts": {"indices": [], "values": []}, "rest": [], "shape": [1]}},
        {"$array": [1.0]},
        {"$tensor": "absent"},
    ]
    blob = safetensors(entry(), bytes(8))
    marks = Marks("0" * 64, {"w": TensorMark("F32", [2], "0" * 64)})
    made = store_at(tmp_path).save(Manifest(FULL, place, trees[0], marks), blob, signer())
    with pytest.raises(CheckpointError, match="not the one that its manifest names"):
        store_at(tmp_path).read(made.path)

    for tree in trees:
        with pytest.raises(CheckpointError):
            unpack(tree, blob)
