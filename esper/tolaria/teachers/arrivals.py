"""A teacher on its way: opened, loaded and tried in a thread of its own, while the training goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import torch

from esper.errors import SettingError
from esper.kernels.teacher.teacher import CheckpointedTeacher, Tell
from esper.leyline import contracts as pb


class Relay:
    """Where a teacher's events go that may come from another thread: kept until somebody hears them."""

    def __init__(self) -> None:
        self._kept: list[tuple[pb.TelemetryLevel, str, dict[str, str]]] = []
        self._tell: Tell | None = None

    def __call__(self, level: pb.TelemetryLevel, description: str, /, **attributes: str) -> None:
        if self._tell is None:
            self._kept.append((level, description, attributes))
        else:
            self._tell(level, description, **attributes)

    def open(self, tell: Tell) -> None:
        """Pass on what was kept, and from now on everything. By the thread that trains."""
        self._tell, kept = tell, self._kept
        self._kept = []
        for level, description, attributes in kept:
            tell(level, description, **attributes)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A teacher that could answer the next step, and figures of its loading by metric name."""

    teacher: CheckpointedTeacher
    measured: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Arrival:
    """What became of one registration on this rank so far. Its result is None where the teacher in use is meant."""

    digest: str
    relay: Relay
    result: Future[Loaded | None]

    @classmethod
    def begin(cls, digest: str, relay: Relay, load: Callable[[], Loaded | None]) -> Arrival:
        """Load in a thread; an interpreter that ends waits for it.

        Threads share the casts that autocast keeps, and whichever leaves its outermost autocast drops them, also those
        of a step under way, whose gradients then sum otherwise. Here none is the outermost.
        """
        nested = torch.autocast_increment_nesting
        executor = ThreadPoolExecutor(1, thread_name_prefix="teacher", initializer=nested)
        result = executor.submit(load)
        executor.shutdown(wait=False)
        return cls(digest, relay, result)

    @classmethod
    def settled(cls, digest: str, error: SettingError | None = None) -> Arrival:
        """Where nothing need be loaded, or nothing can."""
        result: Future[Loaded | None] = Future()
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(None)
        return cls(digest, Relay(), result)

    @property
    def is_here(self) -> bool:
        return self.result.done() and self.error is None

    @property
    def error(self) -> SettingError | None:
        """Why this rank can't have it; None while it may. Raises what nobody foresaw."""
        if not self.result.done():
            return None
        error = self.result.exception()
        if error is not None and not isinstance(error, SettingError):
            raise error
        return error

    @property
    def is_in_use(self) -> bool:
        """Whether nothing was loaded, as the teacher in use is the one."""
        return self.is_here and self.result.result() is None

    def wait(self) -> None:
        """Until it is here or refused."""
        wait([self.result])

    def abandon(self) -> None:
        """Give its memory back once it is here, if it ever is."""
        self.result.add_done_callback(_release)


def _release(result: Future[Loaded | None]) -> None:
    loaded = result.result() if result.exception() is None else None
    if loaded is not None:
        loaded.teacher.release()
