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
    length = len(body)
    if length > MAX_FRAME_BYTES:
        raise _oversize(length)
    return _LENGTH.pack(length) + body


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
        self._unfinished = bytearray()

    def feed(self, data: bytes) -> list[_Spoken]:
        """The messages that these bytes complete. After an error the stream has lost its place: close it."""
        held = self._unfinished
        if held:
            held += data
        given = held or data
        messages, start, body_at, size = [], 0, _LENGTH.size, len(given)
        while body_at <= size:
            (length,) = _LENGTH.unpack_from(given, start)
            if length > MAX_FRAME_BYTES:
                raise _oversize(length)
            end = body_at + length
            if size < end:
                break
            messages.append(self._parse(bytes(given[body_at:end])))
            start, body_at = end, end + _LENGTH.size
        if held:
            del held[:start]
        elif start < size:
            held += data[start:]
        return messages

    def _parse(self, body: bytes) -> _Spoken:
        message = self._message_type()
        try:
            message.ParseFromString(body)
        except DecodeError as error:
            name = self._message_type.DESCRIPTOR.name
            raise RefusedError(pb.ReasonCode.REASON_MALFORMED, f"frame of {len(body)} bytes is no {name}") from error
        return message


def _oversize(length: int) -> RefusedError:
    detail = f"frame of {length} bytes; expected at most {MAX_FRAME_BYTES}"
    return RefusedError(pb.ReasonCode.REASON_OVERSIZE, detail)
