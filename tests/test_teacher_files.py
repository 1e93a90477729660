"""No file but a sound safetensors file of the right digest becomes a teacher, and none runs code."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from esper.errors import SettingError
from esper.kernels.teacher.files import TeacherFile
from esper.kernels.teacher.teacher import CheckpointedTeacher
from tests.hostile_files import num_open
from tests.teacher_kit import answers, professor, questions, saved


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (str(self.sentinel),)


def pickles(sentinel: Path) -> dict[str, bytes]:
    """As torch.save, old torch.save, pickle and .pt2 write them."""
    found = {f"pickle-{protocol}": pickle.dumps(Bomb(sentinel), protocol) for protocol in range(6)}
    for name, zipped in (("torch", True), ("torch-old", False)):
        buffer = io.BytesIO()
        torch.save(Bomb(sentinel), buffer, _use_new_zipfile_serialization=zipped)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Bomb(sentinel)))
        archive.writestr("archive/data/sample_inputs/model.pt", pickle.dumps(Bomb(sentinel)))
        archive.writestr("archive/models/model.json", json.dumps({"expr_str": f"__import__('os').mkdir('{sentinel}')"}))
        archive.writestr("archive/archive_format", "pt2")
    return found | {"pt2": buffer.getvalue()}


def with_header(header: object, body: bytes = b"\0" * 16, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + body


def entry(start: int, end: int, shape: tuple[int, ...] = (4,), dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


CORRUPT = {
    "empty": b"",
    "seven bytes": b"\1" * 7,
    "header of 2^63": with_header({"a": entry(0, 16)}, length=2**63),
    "header of 2^64 - 1": with_header({"a": entry(0, 16)}, length=2**64 - 1),
    "header past the end": with_header({"a": entry(0, 16)}, length=2**20),
    "header cut short": with_header({"a": entry(0, 16)}, length=10),
    "header is a list": with_header([1, 2]),
    "header is a number": with_header(b"12345678"),
    "header is no JSON": with_header(b"{'a': __import__('os')}"),
    "header is not UTF-8": with_header(b'{"\xff": 1}'),
    "header nested deeply": with_header(b'{"a":' * 5000 + b"1" + b"}" * 5000),
    "offsets overlap": with_header({"a": entry(0, 16), "b": entry(8, 16, (2,))}),
    "offsets out of bounds": with_header({"a": entry(0, 1600, (400,))}),
    "offsets backwards": with_header({"a": entry(16, 0)}),
    "offsets negative": with_header({"a": entry(-16, 0)}),
    "offsets of 2^64": with_header({"a": entry(0, 2**64)}),
    "a hole between": with_header({"a": entry(0, 4, (1,)), "b": entry(8, 16, (2,))}),
    "bytes left over": with_header({"a": entry(0, 8, (2,))}),
    "too few bytes": with_header({"a": entry(0, 16)}, b"\0" * 8),
    "shape too large": with_header({"a": entry(0, 16, (5,))}),
    "shape overflows": with_header({"a": entry(0, 16, (2**62, 2**62))}),
    "shape negative": with_header({"a": entry(0, 16, (-4,))}),
    "dtype unknown": with_header({"a": entry(0, 16, dtype="PICKLE")}),
    "entry without offsets": with_header({"a": {"dtype": "F32", "shape": [4]}}),
    "metadata that is no text": with_header({"__metadata__": {"a": {"b": 1}}, "a": entry(0, 16)}),
}


def refused(path: Path) -> str:
    with pytest.raises(SettingError) as error:
        CheckpointedTeacher(professor(), path)
    return str(error.value)


def test_a_pickle_is_refused_by_its_name_and_by_its_first_bytes_and_runs_nothing(tmp_path: Path) -> None:
    sentinel = tmp_path / "ran"
    for kind, data in pickles(sentinel).items():
        for suffix in (".pt", ".pth", ".bin", ".pkl", ".pt2", ".ckpt", "", ".safetensors"):
            path = tmp_path / f"{kind}{suffix}"
            path.write_bytes(data)

            said = refused(path)

            assert "safetensors" in said and path.name in said
            if suffix == ".safetensors":
                assert "no pickle is ever loaded" in said
    assert not sentinel.exists()
    pickle.loads(pickle.dumps(Bomb(sentinel)))  # the trap itself works
    assert sentinel.exists()


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_file_is_one_clear_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "teacher.safetensors"
    path.write_bytes(CORRUPT[kind])

    assert refused(path).startswith("teacher file is 'teacher.safetensors'; expected a safetensors file")


def test_a_file_with_any_bit_flipped_has_another_digest_and_is_refused(tmp_path: Path) -> None:
    path, digest = saved(professor(), tmp_path)
    whole, draw = path.read_bytes(), random.Random(0)
    for at in draw.sample(range(8 * len(whole)), 60):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << (at % 8)
        path.write_bytes(flipped)

        with pytest.raises(SettingError, match=f"sha256 of {digest}.safetensors is .*; expected '?{digest}"):
            TeacherFile.open(path, digest)


def test_without_a_digest_to_compare_a_flipped_header_never_does_more_than_raise_its_error(tmp_path: Path) -> None:
    path, _ = saved(professor(), tmp_path)
    whole, draw, num_refused = path.read_bytes(), random.Random(1), 0
    header_bytes = 8 + int.from_bytes(whole[:8], "little")
    for at in draw.sample(range(8 * header_bytes), 60):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << (at % 8)
        path.write_bytes(flipped)
        try:
            CheckpointedTeacher(professor(), path)
        except SettingError:
            num_refused += 1

    assert num_refused > 40


def test_what_is_read_later_is_what_was_hashed_though_the_file_has_changed(tmp_path: Path) -> None:
    good, other = professor(0), professor(1)
    path, digest = saved(good, tmp_path)
    teacher = CheckpointedTeacher(professor(2), path, digest=digest)

    path.write_bytes(save(other.state_dict()))
    teacher.settle("offload")

    assert torch.equal(teacher(questions()), answers(good, questions()))


@pytest.mark.parametrize("digest", ["../../etc/passwd", "ABC", "g" * 64, "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_a_digest_of_another_form_is_refused(digest: str, tmp_path: Path) -> None:
    path, _ = saved(professor(), tmp_path)

    with pytest.raises(SettingError, match="64 lowercase hex digits"):
        TeacherFile.open(path, digest)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.safetensors")
    (tmp_path / "folder.safetensors").mkdir()

    for name in ("pipe.safetensors", "folder.safetensors", "missing.safetensors"):
        assert "teacher file is" in refused(tmp_path / name)
        assert num_open(tmp_path / name) == 0


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = professor()
    with torch.no_grad():
        model.head.bias[1] = torch.nan
    path, _ = saved(model, tmp_path)

    assert refused(path) == "teacher's tensor 'head.bias' is 'not finite'; expected finite weights"


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_an_infinity_and_a_nan_are_found_in_every_kind_of_float(
    value: float, dtype: torch.dtype, tmp_path: Path
) -> None:
    path = tmp_path / "teacher.safetensors"
    path.write_bytes(save({"empty": torch.zeros(0), "a": torch.tensor([1.0, value, 2.0], dtype=dtype)}))

    with pytest.raises(SettingError, match="tensor 'a' is 'not finite'"):
        TeacherFile.open(path).require_finite()
