"""Files that run code, or break a parser, where somebody loads them."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch


class Trap:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, sentinel: Path) -> None:
        self.sentinel = sentinel

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.sentinel,)


def archive(files: Mapping[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as into:
        for name, content in files.items():
            into.writestr(name, content)
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
    """tests/long/test_hostile_files.py shows that the first eight run code where pickle or torch loads them."""
    trap = Trap(sentinel)
    raw = pickle.dumps(trap)
    return [
        *(pickle.dumps(trap, protocol) for protocol in range(6)),
        torch_file(trap),
        archive({"archive/data.pkl": raw, "archive/version": b"3"}),
        archive({"archive/code/__torch__.py": b"import os", "archive/constants.pkl": raw}),
        archive({"models/model.json": b"{}", "data/aotinductor/model.so": b"\x7fELF"}),
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


def num_open(path: Path) -> int:
    """How many descriptors this process holds of it."""
    return sum(os.path.realpath(each) == str(path) for each in Path("/proc/self/fd").iterdir())
