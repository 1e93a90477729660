"""Frames of the link between a trainer and the runtime beside it: a u32 length, then one message."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from esper.errors import RefusedError
from esper.leyline import contracts as pb

MAX_FRAME_BYTES = 16 << 20
MAX_PART_BYTES = 1 << 20

_LENGTH = struct.Struct(">I")
_Spoken = TypeVar("_Spoken", bound=Message)


def encode(message: pb.ToTrainer | pb.ToRuntime) -> bytes:
    """One frame, ready to be written."""
    body = message.SerializeToString()
    _check_length(len(body))
    return _LENGTH.pack(len(body)) + body


def in_parts(fields: Mapping[str, bytes], most_bytes: int = MAX_PART_BYTES) -> Iterator[dict[str, bytes]]:
    """The same fields, so many at a time that a frame holds them; nothing where there are none."""
    part: dict[str, bytes] = {}
    size = 0
    for name, value in fields.items():
        if part and size + len(name) + len(value) > most_bytes:
            yield part
            part, size = {}, 0
        part[name] = value
        size += len(name) + len(value)
    if part:
        yield part


class FrameDecoder(Generic[_Spoken]):
    """Holds the bytes of an unfinished frame. Knows nothing of sockets."""

    def __init__(self, message_type: type[_Spoken]) -> None:
        self._message_type = message_type
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[_Spoken]:
        """The messages that these bytes complete. After an error the stream has lost its place: close it."""
        self._buffer += data
        messages, start = [], 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            _check_length(length)
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            messages.append(self._parse(bytes(self._buffer[start + _LENGTH.size : end])))
            start = end
        del self._buffer[:start]
        return messages

    def _parse(self, body: bytes) -> _Spoken:
        message = self._message_type()
        try:
            message.ParseFromString(body)
        except DecodeError as error:
            name = self._message_type.DESCRIPTOR.name
            raise RefusedError(pb.ReasonCode.REASON_MALFORMED, f"frame of {len(body)} bytes is no {name}") from error
        return message


def _check_length(length: int) -> None:
    if length > MAX_FRAME_BYTES:
        raise RefusedError(
            pb.ReasonCode.REASON_OVERSIZE, f"frame of {length} bytes; expected at most {MAX_FRAME_BYTES}"
        )
