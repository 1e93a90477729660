"""A checkpoint is there whole or not at all; a torn or forged one is refused and the one before it used."""

from __future__ import annotations

import os
import random
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from esper.errors import CheckpointError
from esper.leyline.keys.keyring import MasterKeyring
from esper.tolaria.checkpoints import disk
from esper.tolaria.checkpoints.store import Checkpoint
from tests.checkpoint_kit import KEYS, RUN, put, signer, store_at

FILES = ("tensors.safetensors", "manifest.json", "manifest.sig")


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """A limit of the operating system's, which ends a write like a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_newest_few_stay_and_latest_names_the_last(tmp_path: Path) -> None:
    store = store_at(tmp_path, keep=2)

    made = [put(store, step) for step in (100, 200, 300)]

    assert store.paths() == [made[2].path, made[1].path]
    assert (tmp_path / "latest").read_text() == made[2].path.name
    assert store.newest()[0] == made[2]


def test_a_clock_that_was_set_back_makes_no_checkpoint_an_old_one(tmp_path: Path) -> None:
    store, now_ns = store_at(tmp_path, keep=2), time.time_ns()
    ahead = [put(store, step, made_ns=now_ns + step * 10**9) for step in (100, 200)]

    behind = [put(store, step, made_ns=now_ns + at) for at, step in enumerate((250, 300))]

    assert not any(each.path.exists() for each in ahead)
    assert store.paths() == [behind[1].path, behind[0].path]
    assert store.newest()[0] == behind[1]


def test_any_flipped_bit_is_refused(tmp_path: Path) -> None:
    store, chance = store_at(tmp_path), random.Random(7)
    older, newer = put(store, 1), put(store, 2)
    for number in range(200):
        file = newer.path / FILES[number % 3]
        whole = bytearray(file.read_bytes())
        place = chance.randrange(len(whole) * 8)
        whole[place // 8] ^= 1 << place % 8
        torn, kept = bytes(whole), file.read_bytes()
        file.write_bytes(torn)

        assert store.newest()[0] == older

        file.write_bytes(kept)
    assert store.newest()[0] == newer


@pytest.mark.parametrize("name", FILES)
def test_one_that_is_cut_short_or_longer_is_refused(tmp_path: Path, name: str) -> None:
    store = store_at(tmp_path)
    made = put(store, 1)
    whole = (made.path / name).read_bytes()
    for length in {0, 1, 7, 8, len(whole) // 2, len(whole) - 1}:
        (made.path / name).write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            store.read(made.path)
    (made.path / name).write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        store.read(made.path)
    (made.path / name).unlink()
    with pytest.raises(CheckpointError, match="can't be read: No such file"):
        store.read(made.path)


def test_one_of_another_run_is_refused_by_its_key(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    made = put(store, 1)
    other = store_at(tmp_path)
    other._verifier = signer("other-00000000")

    with pytest.raises(CheckpointError, match="not what its signature was made for"):
        other.read(made.path)


def test_one_that_says_another_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"of run 'other-00000000'; expected '{RUN}'"):
        put(store_at(tmp_path), 1, run_id="other-00000000")


def test_one_of_an_unknown_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_at(tmp_path)
    monkeypatch.setattr("esper.tolaria.checkpoints.manifest.VERSION", 2)
    made = put(store, 1)
    monkeypatch.undo()

    with pytest.raises(CheckpointError, match="has version 2; expected 1"):
        store.read(made.path)


def test_one_signed_with_an_unknown_or_retired_key_is_refused(tmp_path: Path) -> None:
    now = time.time_ns()
    stranger = signer(keys=MasterKeyring.new(now))
    retired = signer(keys=KEYS.retire(KEYS.validities[0].key_id, now - 1, force=True))
    made = put(store_at(tmp_path), 1)

    for verifier, why in ((stranger, "which this run has not"), (retired, "not valid at")):
        store = store_at(tmp_path)
        store._verifier = verifier
        with pytest.raises(CheckpointError, match=why):
            store.read(made.path)


def test_a_folder_under_another_name_is_refused(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    made = put(store, 1)
    newer = made.path.rename(made.path.with_name(made.path.name.replace("000001-", "000002-")))

    with pytest.raises(CheckpointError, match="its manifest is of full step 1"):
        store.read(newer)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    made = put(store, 1)
    for num_bytes in (0, 10, 200, 300):
        with files_of_at_most(num_bytes), pytest.raises(CheckpointError, match="can't be written: File too large"):
            put(store, 2)

    assert store.newest()[0] == made
    assert sorted(os.listdir(tmp_path)) == ["latest", made.path.name]


def test_a_device_that_fails_to_read_is_one_clear_error() -> None:
    with pytest.raises(CheckpointError, match="mem can't be read: Input/output error"):
        disk.read_file(Path("/proc/self/mem"), 1000)


def test_links_and_pipes_are_no_checkpoint(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    made = put(store, 1)
    signature = made.path / "manifest.sig"
    signature.rename(tmp_path / "elsewhere")
    signature.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="can't be read"):
        store.read(made.path)

    signature.unlink()
    os.mkfifo(signature)
    with pytest.raises(CheckpointError, match="no plain file"):
        store.read(made.path)


def test_what_a_stopped_writer_left_is_swept_away(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    put(store, 1)
    (tmp_path / ".aside-0123").mkdir()
    (tmp_path / ".aside-0123" / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / ".aside-4567").write_bytes(b"half")

    assert len(store.paths()) == 1
    put(store, 2)

    assert list(tmp_path.glob(".aside-*")) == []


def test_junk_displaces_no_good_checkpoint(tmp_path: Path) -> None:
    store = store_at(tmp_path, keep=2)
    for number in range(5):
        (tmp_path / f"step-{number:012d}-ffffffffffffff{number:02x}").mkdir()

    made = [put(store, step) for step in (1, 2)]

    good = [each.path for each in store.verified() if isinstance(each, Checkpoint)]
    assert good == [made[1].path, made[0].path]
    assert len(store.paths()) == 4
