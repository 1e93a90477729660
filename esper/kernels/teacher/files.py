"""A teacher's weights on disk: safetensors only, known by their sha256, copied aside before a byte is parsed."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from safetensors import SafetensorError, safe_open
from torch import Tensor

from esper.errors import SettingError

SUFFIX = ".safetensors"
CHUNK_BYTES = 2**20
HEADER_BYTES_MAX = 16 * 2**20  # of 100,000 tensors it is 12 MB; the format itself allows 100 MB
EXPECTED = "a safetensors file, whose header is JSON; no pickle is ever loaded"
DIGEST = re.compile(r"[0-9a-f]{64}")
MAGICS = {b"PK": "a zip archive, as torch.save and .pt2 write it", b"\x80": "a pickle", b"\x1f\x8b": "gzip"}


class TeacherFile:
    """The tensors of one file. Holds a private copy of it, unlinked: what was hashed is what is read, also later.

    The copy lies in TMPDIR and takes no memory there unless that is a file system in memory.
    """

    def __init__(self, path: Path, digest: str, readable: str) -> None:
        """`readable` names the private copy; it may be closed afterwards."""
        self.path, self.digest = path, digest
        try:
            self._tensors = cast(Any, safe_open)(readable, framework="pt")  # untyped
            names: list[str] = self._tensors.keys()
            shapes = {name: tuple(self._tensors.get_slice(name).get_shape()) for name in names}
        except SafetensorError as error:
            raise SettingError("teacher file", path.name, f"{EXPECTED}; found: {error}") from None
        self.shapes: Mapping[str, tuple[int, ...]] = shapes

    @classmethod
    def open(cls, path: Path, digest: str = "") -> TeacherFile:
        """Raises SettingError where it is no safetensors file or has another sha256 than `digest` (empty: any)."""
        if path.suffix != SUFFIX:
            raise SettingError("teacher file", path.name, f"a name that ends in {SUFFIX}; no other format is loaded")
        if digest:
            require_digest(digest)
        try:
            with tempfile.TemporaryFile() as copy:
                found = _copied(path, copy)
                if digest and found != digest:
                    raise SettingError(f"sha256 of {path.name}", found, digest)
                _require_header(path, copy)
                return cls(path, found, f"/dev/fd/{copy.fileno()}")
        except OSError as error:
            raise SettingError("teacher file", str(path), f"a file that can be read and copied: {error}") from None

    def read(self, name: str) -> Tensor:
        """On the CPU, as stored: a view of the mapped file, which takes no memory of its own until it is copied."""
        try:
            tensor: Tensor = self._tensors.get_tensor(name)
        except (SafetensorError, RuntimeError, TypeError, ValueError) as error:
            raise SettingError(
                f"teacher's tensor {name!r}", self.path.name, f"one that torch can read: {error}"
            ) from None
        return tensor

    def require_finite(self) -> None:
        """Raises SettingError for the first tensor that holds an infinity or a NaN."""
        for name in self.shapes:
            tensor = self.read(name)
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            extremes = (tensor if tensor.itemsize > 1 else tensor.float()).aminmax()  # in one pass; NaN is both
            if not all(bool(extreme.isfinite()) for extreme in extremes):
                raise SettingError(f"teacher's tensor {name!r}", "not finite", "finite weights")


def require_digest(digest: str) -> None:
    if not DIGEST.fullmatch(digest):
        raise SettingError("teacher digest", digest[:80], "a sha256 as 64 lowercase hex digits")


def _copied(path: Path, copy: IO[bytes]) -> str:
    """Copy the file aside; its sha256, of just these bytes."""
    hasher = hashlib.sha256()
    # Without O_NONBLOCK a pipe of that name would be waited for.
    with open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise SettingError("teacher file", path.name, "a regular file")
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            copy.write(chunk)
    copy.flush()
    return hasher.hexdigest()


def _require_header(path: Path, copy: IO[bytes]) -> None:
    """Refuse what is something else before any parser sees it."""
    num_bytes = copy.seek(0, os.SEEK_END)
    copy.seek(0)
    head = copy.read(9)
    for magic, meaning in MAGICS.items():
        if head.startswith(magic) and head[8:] != b"{":
            raise SettingError("teacher file", path.name, f"{EXPECTED}; found: {meaning}")
    header_bytes = int.from_bytes(head[:8], "little")
    if head[8:] != b"{" or header_bytes > min(HEADER_BYTES_MAX, num_bytes - 8):
        found = f"{num_bytes} bytes, a header of {header_bytes} (at most {HEADER_BYTES_MAX})"
        raise SettingError("teacher file", path.name, f"{EXPECTED}; found: {found}")
