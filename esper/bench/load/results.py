"""What a load came to, as a file, and the sum of several."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from esper.bench.load.latencies import LAST_BIN, Latencies
from esper.bench.load.settings import Kind
from esper.bench.load.tally import Tally
from esper.bench.output.placed import place
from esper.errors import SettingError

FORM = 1
Count = Annotated[int, Field(ge=0)]
Bin = Annotated[int, Field(ge=0, le=LAST_BIN)]
Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(slots=True)
class Result:
    """A tally and what it is of. `rate`: asked for, of all together; `seconds`: how long requests were made."""

    run_id: str
    rate: float
    seconds: float
    tally: Tally
    num_workers: int = 1

    def write(self, path: Path) -> None:
        """As JSON that `read` takes."""
        place(_written(self).model_dump_json() + "\n", path)


def read(path: Path) -> Result:
    """The result in a file. SettingError where there is none, or one that does not hold together."""
    try:
        found = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SettingError("the file of a load", str(path), f"one that can be read: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "content"
        raise SettingError(f"{where} of {path}", first["input"], f"the result of a load: {first['msg']}") from None
    latencies = {name: _latencies(part) for name, part in found.latencies.items()}
    tally = Tally(found.kind, Counter(found.counts), latencies)
    return Result(found.run_id, found.rate, found.seconds, tally, found.num_workers)


def summed(results: Iterable[Result]) -> list[Result]:
    """One of each run and kind, in the order in which they come; the loads ran at once, so their rates add up."""
    sums: dict[tuple[str, Kind], Result] = {}
    for result in results:
        place = result.run_id, result.tally.kind
        into = sums.setdefault(place, Result(result.run_id, 0.0, 0.0, Tally(result.tally.kind), 0))
        into.rate += result.rate
        into.seconds = max(into.seconds, result.seconds)
        into.num_workers += result.num_workers
        into.tally.add(result.tally)
    return list(sums.values())


class _Latencies(BaseModel):
    model_config = ConfigDict(extra="forbid")
    lowest_ms: Milliseconds
    highest_ms: Milliseconds
    sum_ms: Milliseconds
    bins: dict[Bin, Annotated[int, Field(ge=1)]]


class _File(BaseModel):
    """`bins`: how many by number of the bin; bin n begins at 0.001 ms * 1.01^n."""

    model_config = ConfigDict(extra="forbid")
    esper_load: Annotated[int, Field(ge=FORM, le=FORM)]
    kind: Kind
    run_id: str
    num_workers: Count
    rate: Milliseconds
    seconds: Milliseconds
    counts: dict[str, Count]
    latencies: dict[str, _Latencies]


def _written(result: Result) -> _File:
    parts = {name: part for name, part in result.tally.latencies.items() if part.bins}
    return _File(
        esper_load=FORM,
        kind=result.tally.kind,
        run_id=result.run_id,
        num_workers=result.num_workers,
        rate=result.rate,
        seconds=result.seconds,
        counts=dict(result.tally.counts),
        latencies={
            name: _Latencies(
                lowest_ms=part.lowest_ms, highest_ms=part.highest_ms, sum_ms=part.sum_ms, bins=dict(part.bins)
            )
            for name, part in parts.items()
        },
    )


def _latencies(part: _Latencies) -> Latencies:
    return Latencies(Counter(part.bins), part.lowest_ms, part.highest_ms, part.sum_ms)
