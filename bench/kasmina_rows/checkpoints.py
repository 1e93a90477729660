"""Checkpoints of a model of 5 M parameters and their restoring, beside writing the same bytes."""

from __future__ import annotations

from collections.abc import Callable

from esper.bench.work.ranks import Rank, write
from report import Report, by_round, quantile
from turns import turns

WIDTH, WARM = 1024, 3


def measure(report: Report, quick: bool) -> None:
    rank = Rank(WIDTH)
    blob = bytes(sum(each.numel() * each.element_size() for each in rank.live))
    arms: dict[str, Callable[[], object]] = {
        "write, fsync": lambda: write(rank.folder / "plain", blob),
        "write, fsync, again": lambda: write(rank.folder / "plain", blob),
        "checkpoint": rank.save,
        "restore": rank.restore,
    }
    rank.save()
    _add(report, "checkpoint, 5 M", turns(arms, 4 if quick else 40, warm=WARM, per_s=1e3), "write, fsync")
    rank.close()


def _add(report: Report, row: str, samples: dict[str, list[float]], against: str) -> None:
    """Too few for stretches of the run: the interval comes from resampling the rounds."""
    for arm, values in samples.items():
        vs = None if arm == against else by_round(values, samples[against], against)
        report.add(row, arm, "p50", quantile(values, 0.5), "ms", len(values), vs)
        report.add(row, arm, "p99", quantile(values, 0.99), "ms", len(values))
