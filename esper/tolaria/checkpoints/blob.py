"""A file of tensors told from a torn or forged one, without asking torch or the library that reads it."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

from esper.errors import CheckpointError
from esper.tolaria.checkpoints.manifest import Marks, TensorMark

_LENGTH = struct.Struct("<Q")


def marks_of(blob: bytes) -> Marks:
    """Of bytes that safetensors has just made: nothing is checked."""
    header, data = _parts(blob)
    rows = _rows(header)
    tensors = {name: TensorMark(row["dtype"], row["shape"], _sha256(_slice(data, row))) for name, row in rows.items()}
    return Marks(_sha256(header), tensors)


def check_blob(blob: bytes, marks: Marks) -> None:
    """Raise CheckpointError, naming what differs, unless every byte is what the manifest says.

    The header is compared before it is parsed, so that nothing unsigned reaches a parser. The digest of the header
    fixes where each tensor lies; tensors and header together are all of the file.
    """
    header, data = _parts(blob)
    if _sha256(header) != marks.header_sha256:
        raise CheckpointError("the header of its tensors is not the one that its manifest names")
    rows = _rows(header)
    if rows.keys() != marks.tensors.keys():
        odd = sorted(rows.keys() ^ marks.tensors.keys())
        raise CheckpointError(f"its tensors are not those of its manifest: {', '.join(odd)}")
    if sum(len(_slice(data, row)) for row in rows.values()) != len(data):
        raise CheckpointError(f"its tensors do not fill the {len(data)} bytes of their file")
    for name, row in rows.items():
        if _sha256(_slice(data, row)) != marks.tensors[name].sha256:
            raise CheckpointError(f"tensor {name!r} is not the one that its manifest names")


def _parts(blob: bytes) -> tuple[memoryview, memoryview]:
    view = memoryview(blob)
    if len(view) < _LENGTH.size:
        raise CheckpointError(f"its tensors have {len(view)} bytes; expected a header of at least {_LENGTH.size}")
    (length,) = _LENGTH.unpack(view[: _LENGTH.size])
    if length > len(view) - _LENGTH.size:
        raise CheckpointError(f"its tensors end after {len(view)} bytes; their header alone has {length}")
    return view[_LENGTH.size : _LENGTH.size + length], view[_LENGTH.size + length :]


def _rows(header: memoryview) -> dict[str, dict[str, Any]]:
    """Dtype, shape and place of each tensor."""
    try:
        rows: dict[str, dict[str, Any]] = json.loads(bytes(header))
        rows.pop("__metadata__", None)
        for row in rows.values():
            first, end = row["data_offsets"]
            if not (isinstance(row["dtype"], str) and isinstance(row["shape"], list) and 0 <= first <= end):
                raise ValueError(row)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"its tensors are not safetensors: {error!r}") from error
    return rows


def _slice(data: memoryview, row: dict[str, Any]) -> memoryview:
    first, end = row["data_offsets"]
    return data[first:end]


def _sha256(part: memoryview) -> str:
    return hashlib.sha256(part).hexdigest()
