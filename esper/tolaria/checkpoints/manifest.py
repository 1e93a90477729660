"""What a checkpoint says of itself, as canonical JSON: the bytes that are signed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from esper.errors import CheckpointError

VERSION = 1
FULL, EMERGENCY = "full", "emergency"


@dataclass(frozen=True, slots=True)
class Place:
    """Whose state it is, and when in its run. A full one is the state before `step`; `made_ns` is since the epoch."""

    run_id: str
    step: int
    made_ns: int
    epoch: int = 0
    rank: int = 0
    world_size: int = 1
    roster_generation: int = 0


@dataclass(frozen=True, slots=True)
class TensorMark:
    """A tensor in the file: dtype in safetensors' notation, and sha256 of its bytes in hex."""

    dtype: str
    shape: list[int]
    sha256: str


@dataclass(frozen=True, slots=True)
class Marks:
    """What must be found in the file of tensors: sha256 of its header, and each tensor by name."""

    header_sha256: str
    tensors: Mapping[str, TensorMark]


@dataclass(frozen=True, slots=True)
class Log:
    """Where the run's logs stood: entry ids by stream, and replay windows by producer as their owner wrote them.

    `beyond` are the entries of decisions behind their position that the state holds; None: an older one does not say.
    """

    positions: Mapping[str, str] = field(default_factory=dict)
    windows: Mapping[str, str] = field(default_factory=dict)
    beyond: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything of a checkpoint but its tensors. `state` is a tree of JSON that names them where they belong."""

    kind: str
    place: Place
    state: Any
    marks: Marks
    log: Log = field(default_factory=Log)
    parameter_digest: str = ""
    reason: str = ""  # why an emergency one was made

    def to_bytes(self) -> bytes:
        """One text per content: keys sorted, no blanks, ASCII."""
        tensors = {name: asdict(mark) for name, mark in self.marks.tensors.items()}
        content = {each.name: getattr(self, each.name) for each in fields(self)}  # asdict would copy all of the state
        content |= {"place": asdict(self.place), "log": asdict(self.log)}
        content["marks"] = {"header_sha256": self.marks.header_sha256, "tensors": tensors}
        return canonical({"esper_checkpoint": VERSION, **content})

    @classmethod
    def from_bytes(cls, raw: bytes) -> Manifest:
        """Raises CheckpointError for another version, and for what no `to_bytes` has written."""
        try:
            content = json.loads(raw)
            version = content.pop("esper_checkpoint")
            if version != VERSION:
                raise CheckpointError(f"its manifest has version {version!r}; expected {VERSION}")
            return cls._of(content)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"its manifest is not one of version {VERSION}: {error!r}") from error

    @classmethod
    def _of(cls, content: dict[str, Any]) -> Manifest:
        marks = content.pop("marks")
        tensors = {name: TensorMark(**mark) for name, mark in marks["tensors"].items()}
        place, log = Place(**content.pop("place")), Log(**content.pop("log"))
        return cls(place=place, log=log, marks=Marks(marks["header_sha256"], tensors), **content)


def canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
