"""The runtime's end of the link to its trainer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from mmap import mmap

from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode
from esper.runtime.beside.doorbell import mapped, ring

_READ_BYTES = 1 << 18


@dataclass
class Lanes:
    """The two socket pairs' ends that were inherited: votes and decisions on one, measurements on the other."""

    control: asyncio.StreamReader
    to_trainer: asyncio.StreamWriter
    rows: asyncio.StreamReader
    rows_writer: asyncio.StreamWriter  # kept open: closing it would hang up the rows lane
    doorbell: mmap | None = None

    @classmethod
    async def adopt(cls, control_fd: int, rows_fd: int, bell_fd: int | None = None) -> Lanes:
        """Take over the descriptors that the trainer passed on; without a doorbell it has to look by itself."""
        control, to_trainer = await asyncio.open_unix_connection(sock=socket.socket(fileno=control_fd))
        rows, rows_writer = await asyncio.open_unix_connection(sock=socket.socket(fileno=rows_fd))
        return cls(control, to_trainer, rows, rows_writer, None if bell_fd is None else mapped(bell_fd))

    def tell(self, *messages: pb.ToTrainer) -> None:
        """Send to the trainer, all at once; it reads at its next boundary."""
        if messages and not self.to_trainer.is_closing():
            self.to_trainer.write(b"".join(map(encode, messages)))
            in_no_hurry = messages[-1].HasField("rows_stored")  # which comes alone
            if self.doorbell is not None and not in_no_hurry:
                asyncio.get_running_loop().call_soon(ring, self.doorbell)  # uvloop up to 0.22 writes after this turn

    async def close(self) -> None:
        """Send what is left and hang up."""
        for writer in (self.to_trainer, self.rows_writer):
            writer.close()


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[pb.ToRuntime]:
    """Messages of one lane, until the trainer hangs up."""
    decoder = FrameDecoder(pb.ToRuntime)
    while data := await _read(reader):
        for message in decoder.feed(data):
            yield message


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(_READ_BYTES)
    except ConnectionError:
        return b""
