"""Teachers that are to be registered, in the order of their commands; the first of them is on its way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial

from torch import Tensor

from esper.errors import SettingError
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.tolaria.teachers.arrivals import Arrival, Loaded, Relay
from esper.tolaria.teachers.source import TeacherSource

Opening = Callable[[], CheckpointedTeacher]


class Registrations:
    """On one rank. Knows neither the other ranks nor the teacher in use, except to leave that one where it is.

    `taken` are tensors that no teacher may hold.
    """

    def __init__(self, taken: Callable[[], Iterable[Tensor]]) -> None:
        self.waiting: deque[str] = deque()
        self.arrival: Arrival | None = None
        self._taken = taken
        self._prepared: tuple[CheckpointedTeacher, Relay] | None = None

    def prepare(self, source: TeacherSource, digest: str) -> None:
        """Open it now, for whoever asks for this digest next; SettingError where it is not sound."""
        relay = Relay()
        self._prepared = source.opened(digest, source.built(self._taken()), relay), relay

    def add(self, digest: str, source: TeacherSource, current: CheckpointedTeacher | None) -> None:
        self.waiting.append(digest)
        if self.arrival is None:
            self._start(source, current)

    def decide(self) -> Arrival:
        """Take the oldest away; `go_on` sets the next on its way."""
        arrival, self.arrival = self.arrival, None
        assert arrival is not None
        self.waiting.popleft()
        return arrival

    def go_on(self, source: TeacherSource, current: CheckpointedTeacher | None) -> None:
        if self.waiting:
            self._start(source, current)

    def look(self, source: TeacherSource, current: CheckpointedTeacher | None) -> None:
        """Where the oldest was to be the teacher in use, and that is another by now, it has to be loaded."""
        arrival = self.arrival
        if arrival is not None and arrival.is_in_use and (current is None or current.digest != arrival.digest):
            self._start(source, current)

    def opening(self, source: TeacherSource, digest: str) -> tuple[Opening, Relay]:
        """How any thread gets it. Its model is made here: other threads draw no random numbers."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared[0].digest == digest:
            teacher, relay = prepared
            return lambda: teacher, relay
        relay = Relay()
        return partial(source.opened, digest, source.built(self._taken()), relay), relay

    def close(self) -> None:
        """Take nothing that is still on its way."""
        if self.arrival is not None:
            self.arrival.abandon()
        self.arrival = None
        self.waiting.clear()

    def _start(self, source: TeacherSource, current: CheckpointedTeacher | None) -> None:
        digest = self.waiting[0]
        if current is not None and current.digest == digest:
            self.arrival = Arrival.settled(digest)
            return
        beside = 0 if current is None else current.resident_bytes()
        try:
            opened, relay = self.opening(source, digest)
        except SettingError as error:
            self.arrival = Arrival.settled(digest, error)
            return
        self.arrival = Arrival.begin(digest, relay, partial(load, source, opened, beside, relay))


def load(source: TeacherSource, opened: Opening, beside: int, relay: Relay) -> Loaded:
    """In whichever thread: touches nothing but the new teacher. `beside` are bytes that another one holds meanwhile."""
    teacher = opened()
    teacher.beside_bytes = beside
    try:
        return Loaded(teacher, source.loaded(teacher, relay))
    except SettingError:
        teacher.release()
        raise
