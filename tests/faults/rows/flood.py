"""Ten times as much junk as signed messages on one stream: these are not late, lost or repeated, and nothing grows."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.check import judge
from tests.faults.crew import COMMANDS, DEAD, GROUP, RECEIPTS, Crew, crew
from tests.faults.history import records
from tests.faults.processes import SOON_S, Child, wait_until
from tests.faults.row import Amounts, Result, Row
from tests.faults.server import UNKEPT, Server

PUBLISHER, FLOODER, WITNESS = "publisher", "flooder", "witness"
FEW = 256  # one batch
CATCH_UP_S = 1.0
TOGETHER = 8  # signed messages in one round trip
LOOK_EVERY_S = 0.1
MOST_LATE = 2.0  # times the quiet p99
MOST_GROWTH_KB = 50 * 1024
MOST_LETTERS = 1_000  # at once; then one a second


class Slice(NamedTuple):
    """A stretch of time, by the monotonic clock."""

    flooded: bool
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Watch:
    """What is looked at while it goes on."""

    hands: Crew
    worker: Child
    slices: list[Slice] = field(default_factory=list)
    most_waiting: int = 0
    resident_kb: list[int] = field(default_factory=list)

    def spend(self, flooded: bool, seconds: float) -> None:
        """Let a slice pass."""
        start_ns = time.monotonic_ns()
        while (end_ns := time.monotonic_ns()) < start_ns + seconds * 1e9:
            self.most_waiting = max(self.most_waiting, self.num_waiting())
            time.sleep(LOOK_EVERY_S)
        self.slices.append(Slice(flooded, start_ns, end_ns))
        self.resident_kb.append(resident_kb(self.worker.pid))

    def num_waiting(self) -> int:
        """Entries that are not judged yet: junk that is goes, and what is signed has its receipt then."""
        return int(self.hands.client.xlen(COMMANDS) - self.hands.client.xlen(RECEIPTS))

    def catch_up(self) -> None:
        """Let go by what the flood has left, for a while: a machine with too much to do is never through."""
        end_s = time.monotonic() + CATCH_UP_S
        wait_until(lambda: self.num_waiting() <= FEW or time.monotonic() > end_s, "a while", SOON_S)


def run(directory: Path, amounts: Amounts, seed: int) -> Result:
    result = Result()
    with Server(directory / "redis", options=UNKEPT) as server, crew(directory, server) as hands:
        worker = hands.on[hands.work("worker", count=256)]
        began_s = time.monotonic()
        hands.publish(PUBLISHER, 10**9, amounts["signed_per_s"], together=TOGETHER)
        wait_until(lambda: len(hands.applied()) > 0, "the flow has begun")
        flooder = hands.start("flooder", FLOODER, per_s=amounts["junk_per_s"], seed=seed)
        wait_until(lambda: bool(list(records(hands.history, FLOODER))), "the flooder is ready")
        flooder.pause()
        watch = Watch(hands, worker)
        take_turns(watch, flooder, amounts)
        finish(hands, flooder)
        result.violations += judge(hands.history)
        check_growth(result, watch, time.monotonic() - began_s)
    tell_times(result, watch.slices, directory / "history")
    if amounts["judges_times"]:
        judge_times(result, amounts["junk_per_s"], amounts["most_waiting"])
    return result


def take_turns(watch: Watch, flooder: Child, amounts: Amounts) -> None:
    """Quiet, flood, quiet, flood: a machine that is slower for a while is so for both."""
    for _ in range(amounts["turns"]):
        watch.spend(False, amounts["quiet_ms"] / 1000)
        flooder.resume()
        watch.spend(True, amounts["flood_ms"] / 1000)
        flooder.pause()
        watch.catch_up()


def finish(hands: Crew, flooder: Child) -> None:
    """No more of either; all of it is read, and what it came to is seen."""
    flooder.kill()
    hands.on.pop(FLOODER)
    hands.stop_publishing()
    wait_until(lambda: is_settled(hands), "the worker is through", 3 * SOON_S)
    wait_until(lambda: hands.is_witnessed(RECEIPTS), "receipts are witnessed", SOON_S)
    for child in hands.on.values():
        child.terminate(SOON_S)


def is_settled(hands: Crew) -> bool:
    """Whether nothing is unread or pending. Junk at the end of the stream is gone, so ids tell nothing."""
    groups: Any = hands.client.xinfo_groups(COMMANDS)
    at = {row["name"].decode(): (row["pending"], row["last-delivered-id"]) for row in groups}
    num_pending, last = at[GROUP]
    return not num_pending and not hands.client.xrange(COMMANDS, f"({last.decode()}", count=1)


def check_growth(result: Result, watch: Watch, lasted_s: float) -> None:
    """The stream, once all of it is judged; the worker, its dead letters and its log."""
    client = watch.hands.client
    num_signed = sum(record["what"] == "acknowledged" for record in records(watch.hands.history, PUBLISHER))
    left, letters = client.xlen(COMMANDS), client.xlen(DEAD)
    lines = watch.hands.log(watch.worker.log.stem).read_text(errors="replace").splitlines()
    grown_kb = max(watch.resident_kb) - watch.resident_kb[0]
    result.count("signed", num_signed)
    result.sample("most_waiting_entries", watch.most_waiting)
    result.sample("resident_growth_mb", grown_kb / 1024)
    result.sample("dead_letters", letters)
    result.sample("log_lines_per_s", len(lines) / lasted_s)
    result.expect(left == num_signed, f"the stream holds {left} entries of {num_signed} signed ones")
    result.expect(grown_kb <= MOST_GROWTH_KB, f"the worker has grown by {grown_kb} kB")
    result.expect(letters <= MOST_LETTERS + lasted_s + 1, f"{letters} dead letters in {lasted_s:.0f} s")
    result.expect(len(lines) <= lasted_s + 2, f"{len(lines)} log lines in {lasted_s:.0f} s: {lines[-1:]}")


def tell_times(result: Result, slices: Sequence[Slice], history: Path) -> None:
    """From publish to effect, as the publisher and the witness saw them."""
    seconds = sum(each.end_ns - each.start_ns for each in slices if each.flooded) / 1e9
    num_junk = sum(record.get("num", 0) for record in records(history, FLOODER))
    quiet_ms, flooded_ms = (quantile(list(latencies(history, slices, flooded)), 0.99) for flooded in (False, True))
    result.count("junk", num_junk)
    result.sample("junk_per_s", num_junk / seconds)
    result.sample("quiet_p99_ms", quiet_ms)
    result.sample("flooded_p99_ms", flooded_ms)


def judge_times(result: Result, junk_per_s: int, most_waiting: int) -> None:
    """The flood came as told, little of it waited, and what is signed was not late."""
    [came], [waited], [quiet_ms], [flooded_ms] = (
        result.samples[what] for what in ("junk_per_s", "most_waiting_entries", "quiet_p99_ms", "flooded_p99_ms")
    )
    result.expect_soon(waited <= most_waiting, f"{waited} entries were not judged at once")
    result.expect_soon(came >= 0.9 * junk_per_s, f"{came:.0f} of {junk_per_s} junk/s came")
    told = f"p99 {flooded_ms:.2f} ms under the flood, {quiet_ms:.2f} ms without"
    result.expect_soon(flooded_ms <= MOST_LATE * quiet_ms, told)


def latencies(history: Path, slices: Sequence[Slice], flooded: bool) -> Iterator[float]:
    """In ms, of what was published in these slices."""
    took = {record["id"]: record["at_ns"] for record in records(history, WITNESS) if record["what"] == "applied"}
    spans = [(each.start_ns, each.end_ns) for each in slices if each.flooded == flooded]
    for record in records(history, PUBLISHER):
        sent_ns = record["at_ns"]
        if record["what"] == "published" and any(first <= sent_ns < last for first, last in spans):
            yield (took.get(record["id"], math.inf) - sent_ns) / 1e6


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


TURN = {"signed_per_s": 2_000, "junk_per_s": 20_000}
ROW = Row(
    "flood",
    run,
    # Short stretches on a machine that has other work say nothing of a p99, nor of what waits: there it is told only.
    ci={**TURN, "turns": 3, "quiet_ms": 700, "flood_ms": 3_400, "judges_times": 0},
    chunk={**TURN, "turns": 10, "quiet_ms": 1_000, "flood_ms": 3_000, "judges_times": 1, "most_waiting": 20_000},
    num_chunks=20,
)
