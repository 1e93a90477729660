"""Does to a real system what breaks such systems, row by row, and checks from recorded histories what came of it."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the rows live beside the suite that runs their short tier

from esper.leyline.durable import replacing  # noqa: E402
from tests.faults.part import Part  # noqa: E402
from tests.faults.row import AmountError, Result, Row, table  # noqa: E402
from tests.faults.several import KINDS, SINGLE  # noqa: E402


class Asked(NamedTuple):
    """What all parts of a report have in common."""

    tier: str
    seed: int
    server: str

    def __str__(self) -> str:
        return f"tier {self.tier}, seed {self.seed} and server {self.server}"


@dataclass(slots=True)
class Done:
    """What has been done of one row so far."""

    row: str
    num_chunks: int
    chunks: list[int] = field(default_factory=list)
    seconds: float = 0.0
    result: Result = field(default_factory=Result)
    replay: list[str] = field(default_factory=list)  # the command that repeats each chunk that failed

    def as_fields(self) -> dict[str, object]:
        return {**asdict(self), "figures": {what: spread(values) for what, values in self.result.samples.items()}}


def spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    at = [ordered[min(len(ordered) - 1, int(level * len(ordered)))] for level in (0.5, 0.99)]
    return {"n": len(ordered), "p50": at[0], "p99": at[1], "max": ordered[-1]}


def main() -> int:
    given = arguments()
    rows = list(chosen(given.row, given.server))
    for row in rows if given.amounts else ():
        row.amounts(given.tier, dict(given.amounts))  # a name that there is not ends it before anything begins
    asked = Asked(given.tier, given.seed, given.server)
    done = earlier(given.report, asked) if given.report else {}
    for row in rows:
        total = 1 if given.tier == "ci" else row.num_chunks
        state = done.setdefault(row.name, Done(row.name, total))
        for chunk in wanted(given.chunk, total, state):
            run_chunk(row, chunk, given, state)
            if given.report:
                keep(given.report, report(done, asked))
        print(line(state), flush=True)
    return int(any(state.result.broken for state in done.values()))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tier", choices=("ci", "full"), default="ci", help="how much of everything")
    parser.add_argument("--server", choices=KINDS, default=SINGLE, help="what Redis is")
    parser.add_argument("--seed", type=int, default=1, help="of what is done when")
    parser.add_argument("--row", action="append", default=[], help="only this row; may be given several times")
    parser.add_argument("--chunk", type=int, help="only this part of a full row")
    parser.add_argument("--report", type=Path, help="where to; parts that it already holds are not done again")
    told = "another amount than the tier's, as seconds=60; such parts stand in no report"
    parser.add_argument(
        "--set", dest="amounts", type=amount, action="append", default=[], metavar="NAME=NUMBER", help=told
    )
    given = parser.parse_args()
    if given.amounts and given.report:
        parser.error("--set is for a try; expected no --report, which is of what the tier asks for")
    return given


def amount(text: str) -> tuple[str, int]:
    """Of an argument; ValueError where it is none."""
    name, _, number = text.partition("=")
    return name, int(number)


def chosen(names: Sequence[str], server: str) -> Iterator[Row]:
    rows = {row.name: row for row in table() if row.anywhere or server == SINGLE}
    for name in names or rows:
        if name not in rows:
            sys.exit(f"row is {name!r}; expected one of {', '.join(rows)}")
        yield rows[name]


def wanted(only: int | None, total: int, state: Done) -> list[int]:
    asked = range(total) if only is None else [only]
    return [chunk for chunk in asked if chunk not in state.chunks]


def run_chunk(row: Row, chunk: int, given: argparse.Namespace, state: Done) -> None:
    """Run one part in a directory of its own, which is kept where a promise was broken, or the part itself fails."""
    directory = Path(tempfile.mkdtemp(prefix="faults-"))
    part = Part(row, given.tier, given.seed, chunk, dict(given.amounts), given.server)
    began = time.monotonic()
    with ExitStack() as stack:
        stack.callback(tell_again, part, directory)
        result = part.run(directory)
        stack.pop_all()
    state.seconds += time.monotonic() - began
    state.chunks.append(chunk)
    state.result.add(result)
    if not result.broken:
        shutil.rmtree(directory, ignore_errors=True)
        return
    state.replay.append(part.again)
    for violation in result.broken[:20]:
        print(f"{row.name}: {violation}", file=sys.stderr)
    tell_again(part, directory)


def tell_again(part: Part, directory: Path) -> None:
    print(f"again with: {part.again}  (histories: {directory})", file=sys.stderr, flush=True)


def line(state: Done) -> str:
    counts = ", ".join(f"{number:,} {what}" for what, number in state.result.counts.items())
    figures = "; ".join(
        f"{what} p50 {at['p50']:.3g} p99 {at['p99']:.3g} max {at['max']:.3g}"
        for what, at in ((what, spread(values)) for what, values in state.result.samples.items())
    )
    verdict = (
        "ok" if not state.result.broken else f"{len(state.result.violations)} violations, {len(state.result.late)} late"
    )
    parts = f"{len(state.chunks)}/{state.num_chunks} parts"
    return f"{state.row:<14} {verdict:<6} {state.seconds:7.1f} s  {parts}  {counts}  {figures}"


def report(done: dict[str, Done], asked: Asked) -> dict[str, object]:
    machine = f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    rows = [state.as_fields() for state in done.values()]
    return {"bench": "faults", **asked._asdict(), "machine": machine, "rows": rows}


def keep(path: Path, told: dict[str, object]) -> None:
    """Whole or not at all: hours may be in what lies there already."""
    with replacing(path) as file:
        file.write(f"{json.dumps(told, indent=1)}\n".encode())


def earlier(path: Path, asked: Asked) -> dict[str, Done]:
    """What a report already holds, where it is of the same."""
    if not path.exists():
        return {}
    kept = json.loads(path.read_text())
    of = Asked(kept["tier"], kept["seed"], kept.get("server", SINGLE))
    if of != asked:
        sys.exit(f"{path} is of {of}; expected {asked}")
    done = {}
    for row in kept["rows"]:
        del row["figures"]
        done[row["row"]] = Done(**{**row, "result": Result(**row["result"])})
    return done


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AmountError as error:
        sys.exit(str(error))
