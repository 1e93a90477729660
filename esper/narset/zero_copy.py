"""Bodies of packets and frames that are read as they lie, where they look like one that was parsed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.routes import Reading
from esper.leyline.validate import bounds
from esper.leyline.validate.telemetry import NUM_PACKETS, Names, packet as packet_rule, telemetry_frame
from esper.narset.layout import MOST_BYTES, MOST_ROW_BYTES, TEXT, Layout, fields, is_number, layout_of

LEARN_AFTER = 16  # messages of another look: learning from one takes as long as to parse some packets
MOST_LAYOUTS = 256
_PACKETS, _SHED_TAG = 5, 0x30


class Packed:
    """Sound packets of one source, in the order of their sequences, as the rows of a layout.

    `head`: the frame without its packets; None: a packet under a seal of its own.
    """

    __slots__ = ("head", "layout", "rows", "sequences")
    version = bounds.VERSION

    def __init__(
        self, layout: Layout, rows: bytes, sequences: Sequence[int], head: pb.TelemetryFrame | None = None
    ) -> None:
        self.layout, self.rows, self.sequences, self.head = layout, rows, sequences, head

    def kept(self, new: Sequence[int]) -> bytes:
        """The rows with these sequences."""
        if len(new) == len(self.sequences):
            return self.rows
        wanted, size = frozenset(new), self.layout.size
        places = (place for place, sequence in enumerate(self.sequences) if sequence in wanted)
        return b"".join(self.rows[place * size : (place + 1) * size] for place in places)


class Layouts:
    """Those that were met, each as one object, whichever producer it was met of: what is alike is taken together."""

    def __init__(self) -> None:
        self._met: dict[tuple[bytes, bytes], Layout] = {}

    def one(self, layout: Layout) -> Layout:
        """The one that was met before, if it was."""
        if len(self._met) >= MOST_LAYOUTS:
            self._met.clear()
        return self._met.setdefault(layout.key, layout)


T = TypeVar("T", bound=Message)
T_contra = TypeVar("T_contra", bound=Message, contravariant=True)


class Look(Protocol[T_contra]):
    """What bodies look like, by the one that was learnt from last."""

    def pack(self, body: bytes) -> Packed | None: ...
    def learn(self, message: T_contra, body: bytes) -> None: ...


class Reader(Generic[T]):
    """Of the bodies of one producer: packs what has the known look, parses all else, and learns from some of that."""

    def __init__(self, message_type: type[T], rule: Callable[[T], Names], look: Look[T]) -> None:
        self._type, self._rule, self._look = message_type, rule, look
        self._passing = 0

    def parse(self, body: bytes) -> T | Packed:
        """The message, or the same packed."""
        packed = self._look.pack(body)
        if packed is not None:
            return packed
        message = self._type.FromString(body)
        if self._passing:
            self._passing -= 1
        else:
            self._passing = LEARN_AFTER
            self._learn(message, body)
        return message

    def rule(self, message: T | Packed) -> Names:
        """What is packed was checked."""
        return message.layout.names if isinstance(message, Packed) else self._rule(message)

    def _learn(self, message: T, body: bytes) -> None:
        """From a sound message with nothing but values; the rule tells of any other when it is asked next."""
        with suppress(RefusedError):
            bounds.version(message)
            if self._rule(message) is not None:
                self._look.learn(message, body)


class PacketLook:
    """Of packets under seals of their own."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._layout: Layout | None = None

    def pack(self, body: bytes) -> Packed | None:
        """One packet."""
        layout = self._layout
        if layout is None or len(body) != layout.size or not layout.holds(body, 1):
            return None
        sequence = layout.sequence(body)
        return Packed(layout, body, (sequence,)) if sequence else None

    def learn(self, message: pb.TelemetryPacket, body: bytes) -> None:
        """All of it is its row."""
        layout = layout_of(message, body, 0)
        if layout is not None:
            self._layout = self._layouts.one(layout)


class FrameLook:
    """Of frames: their packets are rows between what they say of their source and what was shed."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._layout: Layout | None = None
        self._start, self._tail, self._head = b"", b"", pb.TelemetryFrame()

    def pack(self, body: bytes) -> Packed | None:
        """All packets of a frame, or none."""
        layout, at = self._layout, len(self._start)
        if layout is None or not body.startswith(self._start):
            return None
        count = (len(body) - at) // layout.size
        end = at + count * layout.size
        rows, tail = body[at:end], body[end:]
        if not 0 < count <= NUM_PACKETS or not layout.holds(rows, count):
            return None
        sequences = rising(layout.sequences(rows))
        if sequences is None or (tail != self._tail and not self._ends(tail)):
            return None
        return Packed(layout, rows, sequences, self._head)

    def learn(self, message: pb.TelemetryFrame, body: bytes) -> None:
        """From its last packet."""
        try:
            packets = [found for found in fields(body, 0, len(body)) if found[:2] == (_PACKETS, TEXT)]
        except ValueError:
            return
        if not packets or packets[0].start > MOST_ROW_BYTES:  # who says so much before them is parsed
            return
        start, last = body[: packets[0].start], packets[-1]
        head = pb.TelemetryFrame.FromString(start)
        if _source_of(head) == _source_of(message):
            row = body[last.start : last.end]
            layout = layout_of(message.packets[-1], row, last.value - last.start)
            self._layout = None if layout is None else self._layouts.one(layout)
            self._start, self._tail, self._head = start, b"", head

    def _ends(self, tail: bytes) -> bool:
        """Whether a frame may end so: with how much was shed, and nothing else."""
        if tail and (tail[0] != _SHED_TAG or len(tail) > 1 + MOST_BYTES or not is_number(tail[1:])):
            return False
        self._tail, self._head = tail, pb.TelemetryFrame.FromString(self._start + tail)
        return True


def _source_of(frame: pb.TelemetryFrame) -> tuple[int, str, int, str]:
    return frame.version, frame.source, frame.incarnation, frame.region


def rising(sequences: NDArray[np.uint64]) -> Sequence[int] | None:
    """The same, in the shortest form; None: they do not rise from 1 on."""
    first, last = int(sequences[0]), int(sequences[-1])
    if not first or not (sequences[1:] > sequences[:-1]).all():
        return None
    return range(first, last + 1) if last - first == len(sequences) - 1 else sequences.tolist()


def readings() -> dict[type[Message], Callable[[], Reading]]:
    """What reads the bodies of a producer's packets, and of its frames, for an opener."""
    layouts = Layouts()
    return {
        pb.TelemetryPacket: lambda: Reader(pb.TelemetryPacket, packet_rule, PacketLook(layouts)),
        pb.TelemetryFrame: lambda: Reader(pb.TelemetryFrame, telemetry_frame, FrameLook(layouts)),
    }
