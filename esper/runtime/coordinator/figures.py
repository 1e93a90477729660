"""What a coordinator decides, counted as it is told."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from esper.leyline import contracts as pb
from esper.leyline.lifecycle import reason_name, status_name
from esper.runtime.coordinator.rule import Outcome
from esper.runtime.operations.catalogue import counter, gauge, histogram
from esper.runtime.operations.figures import counted
from esper.runtime.operations.health import Clock

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
FORGET_AFTER_S = 600.0
"""A worker of which nothing was heard for so long is shown no more, so that names of many runs don't pile up."""


class RoundFigures(Collector):
    """Counts rounds, verdicts and the workers heard of."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self.clock = clock
        self.rounds, self.verdicts = Counter[str](committed=0, aborted=0), Counter[tuple[str, str]]()
        self.num_deviating = 0
        self.latencies_s, self.latency_sum_s = [0] * (len(BOUNDS_S) + 1), 0.0
        self.heard_s: dict[str, float] = {}

    def hear(self, heartbeat: pb.Heartbeat) -> None:
        if heartbeat.HasField("report"):  # its farewell
            self.heard_s.pop(heartbeat.worker, None)
        else:
            self.heard_s[heartbeat.worker] = self.clock()

    def note(self, outcome: Outcome) -> None:
        for decision in outcome.decisions:
            match decision:
                case pb.BarrierCommit():
                    self._note_commit(decision)
                case pb.BarrierAbort():
                    self.rounds["aborted"] += 1
        for receipt in outcome.receipts:
            self.verdicts[status_name(receipt.status), reason_name(receipt.reason) if receipt.reason else ""] += 1

    def _note_commit(self, commit: pb.BarrierCommit) -> None:
        latency_s = commit.latency_ms / 1000
        self.rounds["committed"] += 1
        self.num_deviating += len(set(commit.deviating) | set(commit.deviating_gradients))
        self.latencies_s[bisect_left(BOUNDS_S, latency_s)] += 1
        self.latency_sum_s += latency_s

    def collect(self) -> Iterator[Metric]:
        """What a scrape asks for."""
        rounds, verdicts = counter("esper_rounds_total"), counter("esper_command_verdicts_total")
        for outcome, number in self.rounds.items():
            rounds.add_metric((outcome,), number)
        for (status, reason), number in self.verdicts.items():
            verdicts.add_metric((status, reason), number)
        yield from (rounds, verdicts, counted("esper_votes_deviating_total", self.num_deviating))
        latency = histogram("esper_round_latency_seconds")
        ends = [*map(str, BOUNDS_S), "+Inf"]
        buckets = list(zip(ends, map(float, accumulate(self.latencies_s)), strict=True))
        latency.add_metric((), buckets, self.latency_sum_s)
        yield latency
        yield self._ages()

    def _ages(self) -> Metric:
        now_s, ages = self.clock(), gauge("esper_worker_heartbeat_age_seconds")
        for worker, heard_s in list(self.heard_s.items()):
            if now_s - heard_s > FORGET_AFTER_S:
                del self.heard_s[worker]
            else:
                ages.add_metric((worker,), now_s - heard_s)
        return ages
