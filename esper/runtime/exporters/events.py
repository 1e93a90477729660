"""TensorBoard event files: one record an aggregate, which also says how far they have come."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.runtime.exporters.loop import NOTHING, Entry

try:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
    from tensorboard.summary.writer.record_writer import RecordWriter
except ModuleNotFoundError as missing:
    raise SettingError("tensorboard", "not installed", "it to be: pip install 'esper[tensorboard]'") from missing

SCALARS = ("mean", "min", "max", "last")
MOST_STEP = 2**63 - 1
"""That an event file has room for; a worker may say twice as much."""
_WRITER = re.compile(r"esper (\d+-\d+) (\d+)")
_HEAD, _CRC = struct.Struct("<QI"), struct.Struct("<I")


class EventFiles:
    """A file a start, in a folder. Each batch is fsynced before the next is read; a torn record at the end stays so.

    Tags are metric/mean, /min, /max, /last and /distribution; the step is the highest one in the aggregate.
    """

    def __init__(self, folder: Path, bins: Callable[[pb.MetricStatistics], Sequence[tuple[float, int]]]) -> None:
        self.folder, self._bins = folder, bins
        self.position, self.sequence = NOTHING, 0
        files = sorted(folder.glob("events.out.tfevents.*.esper"))
        for path in reversed(files):
            found = _last_of(path)
            if found is not None:
                self.position, self.sequence = found
                break
        number = 1 + (int(files[-1].name.split(".")[3]) if files else 0)
        self._path = folder / f"events.out.tfevents.{number:010}.esper"

    async def write(self, entries: Sequence[Entry]) -> None:
        """Append a record each, and have them on disk."""
        with self._path.open("ab") as file:
            writer = RecordWriter(file)
            if not file.tell():
                at_s = entries[0].aggregate.first_timestamp_ns / 1e9
                writer.write(Event(wall_time=at_s, file_version="brain.Event:2").SerializeToString())
            for entry in entries:
                writer.write(self._event(entry).SerializeToString())
            file.flush()
            os.fsync(file.fileno())
        self.position, self.sequence = entries[-1].entry_id, entries[-1].aggregate.sequence

    def _event(self, entry: Entry) -> Event:
        aggregate = entry.aggregate
        event = Event(wall_time=aggregate.last_timestamp_ns / 1e9, step=min(aggregate.max_step, MOST_STEP))
        event.source_metadata.writer = f"esper {entry.entry_id} {aggregate.sequence}"
        for name, statistics in sorted(aggregate.metrics.items()):
            if statistics.count:
                event.summary.value.extend(self._values(name, statistics))
        return event

    def _values(self, name: str, statistics: pb.MetricStatistics) -> Iterator[Summary.Value]:
        for figure in SCALARS:
            yield Summary.Value(tag=f"{name}/{figure}", simple_value=getattr(statistics, figure))
        if statistics.sketch:
            bins = self._bins(statistics)
            histogram = HistogramProto(
                min=statistics.min,
                max=statistics.max,
                num=statistics.count,
                sum=statistics.sum,
                sum_squares=statistics.m2 + statistics.count * statistics.mean * statistics.mean,
                bucket_limit=[end for end, _ in bins],
                bucket=[count for _, count in bins],
            )
            yield Summary.Value(tag=f"{name}/distribution", histo=histogram)


def _last_of(path: Path) -> tuple[str, int] | None:
    """Entry id and number in the last record that is sound; None: there is none."""
    with path.open("rb") as file:
        for offset, length in reversed(list(_offsets(file))):
            file.seek(offset)
            data, [crc] = file.read(length), _CRC.unpack(file.read(_CRC.size))
            if crc == masked_crc32c(data):
                said = _WRITER.fullmatch(Event.FromString(data).source_metadata.writer)
                return (said[1], int(said[2])) if said else None
    return None


def _offsets(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Where records lie, and how long each is, as far as they are whole. The checksum of a body takes 1 ms for 2 KB."""
    size = os.fstat(file.fileno()).st_size
    while len(head := file.read(_HEAD.size)) == _HEAD.size:
        length, crc = _HEAD.unpack(head)
        offset = file.tell()
        if crc != masked_crc32c(head[:8]) or offset + length + _CRC.size > size:
            return
        yield offset, length
        file.seek(length + _CRC.size, os.SEEK_CUR)
