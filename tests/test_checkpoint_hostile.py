"""Files that would run code where they are loaded are refused, and run none, whoever has signed them."""

from __future__ import annotations

import io
import json
import pickle
import struct
import time
import zipfile
from pathlib import Path

import pytest
import torch

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.manifest import FULL, Manifest, Marks, Place, TensorMark
from esper.tolaria.checkpoints.tree import unpack
from tests.checkpoint_kit import RUN, put, signer, store_at


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.sentinel,)


def archive(**files: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as into:
        for name, content in files.items():
            into.writestr(name.replace("_", "/"), content)
    return held.getvalue()


def torch_file(trap: Trap) -> bytes:
    held = io.BytesIO()
    torch.save({"w": torch.zeros(2), "x": trap}, held)
    return held.getvalue()


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(**changes: object) -> dict[str, dict[str, object]]:
    return {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}}


def malicious(sentinel: Path) -> list[bytes]:
    trap = Trap(sentinel)
    raw = pickle.dumps(trap)
    return [
        *(pickle.dumps(trap, protocol) for protocol in range(6)),
        torch_file(trap),
        archive(archive_data_pkl=raw, archive_version=b"3"),
        archive(archive_code___torch___py=b"import os", archive_constants_pkl=raw),
        archive(models_model_json=b"{}", data_aotinductor_model_so=b"\x7fELF"),
        struct.pack("<Q", len(raw)) + raw,
        safetensors({"__metadata__": {"format": "pt", "code": raw.hex()}, **entry()}, bytes(7)),
        safetensors(entry(data_offsets=[0, 2**63]), bytes(8)),
        safetensors(entry(data_offsets=[8, 0]), bytes(8)),
        safetensors(entry(dtype="PICKLE"), bytes(8)),
        safetensors(entry(shape=[2**40]), bytes(8)),
        safetensors(entry(shape=[-2]), bytes(8)),
        safetensors(b"[" * 100_000),
        safetensors(b'{"w":' * 3 + b"{}}}"),
        struct.pack("<Q", 2**64 - 1) + bytes(100),
    ]


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
    trees = [{"$wrapped": {"class": "Popen", "parts": {}, "rest": [], "shape": [1]}}, {"$tensor": "absent"}]
    blob = safetensors(entry(), bytes(8))
    marks = Marks("0" * 64, {"w": TensorMark("F32", [2], "0" * 64)})
    made = store_at(tmp_path).save(Manifest(FULL, place, trees[0], marks), blob, signer())
    with pytest.raises(CheckpointError, match="not the one that its manifest names"):
        store_at(tmp_path).read(made.path)

    for tree in trees:
        with pytest.raises(CheckpointError):
            unpack(tree, blob)
