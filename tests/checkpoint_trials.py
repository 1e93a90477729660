"""What may happen to a checkpoint, often and at random: writers killed, bits flipped, files forged."""

from __future__ import annotations

import itertools
import os
import random
import signal
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.store import Store
from esper.tolaria.checkpoints.tree import unpack
from tests.checkpoint_kit import Training, put, store_at
from tests.exported_files import exported
from tests.hostile_files import malicious

FILES = ("tensors.safetensors", "manifest.json", "manifest.sig")
NUM_VALUES = 500_000
PATIENCE_S = 120.0
ROLLBACK_S = 0.08  # what a rollback and the checkpoint after it take
TAIL_S = 0.05  # what follows the last byte: fsyncs, renames, reading back, letting go of the oldest


class BrokenError(Exception):
    """A trial met what must not be."""


def kills(num: int, seed: int) -> Counter[str]:
    """Kill a process that makes checkpoints, wherever it is; the newest that it told of, or one after it, must load."""
    draw, met = random.Random(seed), Counter[str]()
    for trial in range(num):
        with TemporaryDirectory(prefix="kills-") as name:
            met += _kill(Path(name), random.Random(draw.random()), trial)
    return met


def flips(num: int, seed: int) -> Counter[str]:
    """Flip one bit of one file at a time; the checkpoint before it must be taken."""
    draw, met = random.Random(seed), Counter[str]()
    with TemporaryDirectory(prefix="flips-") as name:
        store = store_at(Path(name))
        older, newer = put(store, 1), put(store, 2)
        for _ in range(num):
            file = draw.choice(FILES)
            with _flipped(newer.path / file, draw):
                if store.newest()[0] != older:
                    raise BrokenError(f"a flipped bit of {file} was not seen")
            met[file] += 1
        if store.newest()[0] != newer:
            raise BrokenError("the file is not as it was")
    return met


def forgeries(num: int, seed: int) -> Counter[str]:
    """Put files that run code, or pieces of them, in place of tensors and manifests; none may be read, none may run."""
    draw, met = random.Random(seed), Counter[str]()
    with TemporaryDirectory(prefix="forgeries-") as name:
        sentinel, store = Path(name) / "ran", store_at(Path(name) / "kept")
        older, newer = put(store, 1), put(store, 2)
        files = [*malicious(sentinel), *exported(sentinel).values()]
        for number in range(num):
            forged = _mangled(files[number % len(files)], draw) if number >= len(files) else files[number]
            file = newer.path / draw.choice(FILES)
            whole = file.read_bytes()
            file.write_bytes(forged)
            if store.newest()[0] != older or _parsed(forged) or sentinel.exists():
                raise BrokenError(f"forgery {number} was not refused")
            file.write_bytes(whole)
            met[file.name] += 1
    return met


def rollbacks(num: int, seed: int) -> Counter[str]:
    """Kill a process around a rollback; whoever resumes must not stand where it undid, once it was told of.

    Half of them go back to a checkpoint, half to a snapshot that only memory held.
    """
    draw, met = random.Random(seed), Counter[str]()
    for trial in range(num):
        with TemporaryDirectory(prefix="rollbacks-") as name:
            met += _kill_in_rollback(Path(name), random.Random(draw.random()), trial)
    return met


def _kill_in_rollback(folder: Path, draw: random.Random, trial: int) -> Counter[str]:
    from_disk, delay_s = trial % 2 == 0, draw.random() * ROLLBACK_S
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _roll_back(folder, from_disk, tell)
    os.close(tell)
    with open(told, "rb", buffering=0) as pipe:
        pipe.read(1)  # it is about to begin
        _spin(delay_s)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        was_told = bool(pipe.read(1))
    again = Training(folder)
    place = again.checkpoints.resume()
    at = 0 if place is None else place.step
    restored = {5, 12}  # the checkpoint that it went back to, or that stood before the snapshot; the one made after it
    if at not in restored | (set() if was_told else {9}):
        raise BrokenError(f"rollback {trial}: resumed at {at} after {'it' if was_told else 'a part of it'}")
    return Counter({"trials": 1, "told of": int(was_told), "resumed after it": int(at == 12), "undone": int(at == 9)})


def _roll_back(folder: Path, from_disk: bool, tell: int) -> None:
    """In the child: checkpoints before steps 5 and 9, a snapshot before 7; before 12 back to 5 or 7, and a new one."""
    try:
        run = Training(folder, every=4)
        run.train(6)
        run.states.take(7)
        run.train(5)
        os.write(tell, b"!")
        run.roll_back(5 if from_disk else 7)
        os.write(tell, b"!")
        run.checkpoints.at_boundary(12, 0)
        signal.pause()
    finally:
        os._exit(3)


def _kill(folder: Path, draw: random.Random, trial: int) -> Counter[str]:
    store = store_at(folder)
    put(store, 1, _state(1))
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _write_on(store, tell)
    os.close(tell)
    size = NUM_VALUES * 4
    in_tail = draw.random() < 0.4
    _await_bytes(folder, size if in_tail else draw.randrange(size), saves=draw.randint(0, 2))
    if in_tail:
        _spin(draw.random() * TAIL_S)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(told, "rb") as pipe:
        acknowledged = max((1, *(step for (step,) in struct.iter_unpack(">H", pipe.read()))))
    return _looked_at(folder, store, acknowledged, trial)


def _write_on(store: Store, tell: int) -> None:
    """In the child: make checkpoints and tell of each, until killed: whoever watches may look away for long."""
    try:
        for step in itertools.count(2):
            put(store, step, _state(step))
            os.write(tell, struct.pack(">H", step))
    finally:
        os._exit(3)


def _looked_at(folder: Path, store: Store, acknowledged: int, trial: int) -> Counter[str]:
    met = Counter({"trials": 1, "in the middle of a write": bool(list(folder.glob(".aside-*")))})
    newest, blob = store.newest()
    if newest.step < acknowledged:
        raise BrokenError(f"trial {trial}: step {acknowledged} was told of, the newest is {newest.step}")
    if not torch.equal(unpack(newest.manifest.state, blob)["w"], _state(newest.step)["w"]):
        raise BrokenError(f"trial {trial}: step {newest.step} holds other values")
    met["renamed and not told of"] = int(newest.step > acknowledged)
    latest = (folder / "latest").read_text()
    if not (folder / latest).is_dir():
        raise BrokenError(f"trial {trial}: latest names {latest}, which is not there")
    after = put(store, newest.step + 1, _state(1))
    if store.newest()[0] != after or list(folder.glob(".aside-*")):
        raise BrokenError(f"trial {trial}: the next checkpoint is not as it should be")
    return met


def _state(step: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((NUM_VALUES,), float(step))}


def _await_bytes(folder: Path, num_bytes: int, saves: int) -> None:
    """Until the child has made so many, and so many bytes of the next."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if len(list(folder.glob("step-*"))) > saves and _written(folder) >= num_bytes:
            return
    raise BrokenError(f"the child wrote nothing within {PATIENCE_S:g} s")


def _written(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return sum(file.stat().st_size for aside in folder.glob(".aside-*") for file in aside.glob("*.safetensors"))
    return 0


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@contextmanager
def _flipped(file: Path, draw: random.Random) -> Iterator[None]:
    whole = file.read_bytes()
    place = draw.randrange(len(whole) * 8)
    changed = bytearray(whole)
    changed[place // 8] ^= 1 << place % 8
    file.write_bytes(changed)
    yield
    file.write_bytes(whole)


def _mangled(content: bytes, draw: random.Random) -> bytes:
    """Cut, with some bytes replaced, or with others before it."""
    changed = bytearray(content[: draw.randrange(1, len(content) + 1)])
    for _ in range(draw.randrange(4)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return draw.randbytes(draw.choice((0, 0, 8))) + bytes(changed)


def _parsed(forged: bytes) -> bool:
    """Whether the parser takes it, as it would if its signer had meant it."""
    try:
        unpack({"w": {"$tensor": "w"}}, forged)
    except CheckpointError:
        return False
    return True
