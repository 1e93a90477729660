"""Latencies of a load: close to the true ones, and exact where those of several workers are added up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from esper.bench.load import results
from esper.bench.load.latencies import Latencies
from esper.bench.load.results import Result
from esper.bench.load.tally import Tally
from esper.errors import SettingError

SAMPLES_MS = np.random.default_rng(7).lognormal(mean=1.0, sigma=2.0, size=20_000)


def of(samples: object) -> Latencies:
    latencies = Latencies()
    for sample in np.asarray(samples).tolist():
        latencies.note(sample)
    return latencies


@pytest.mark.parametrize("level", [0.001, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_a_quantile_lies_within_half_a_percent(level: float) -> None:
    true = float(np.quantile(SAMPLES_MS, level, method="inverted_cdf"))

    assert of(SAMPLES_MS).quantile(level) == pytest.approx(true, rel=0.006)


def test_the_ends_and_the_mean_are_exact() -> None:
    latencies = of(SAMPLES_MS)

    assert latencies.quantile(1.0) == latencies.highest_ms == SAMPLES_MS.max()
    assert latencies.lowest_ms == SAMPLES_MS.min()
    assert latencies.sum_ms / latencies.num == pytest.approx(SAMPLES_MS.mean())


def test_the_sum_of_parts_is_the_whole() -> None:
    whole, folded = of(SAMPLES_MS), Latencies()
    for part in np.array_split(SAMPLES_MS, 5):
        folded.add(of(part))

    assert folded.bins == whole.bins
    assert (folded.lowest_ms, folded.highest_ms) == (whole.lowest_ms, whole.highest_ms)


@pytest.mark.parametrize("most", [1, 3, 16])
def test_bars_hold_every_sample_in_few_ranges(most: int) -> None:
    rows = list(of(SAMPLES_MS).bars(most))

    assert len(rows) <= most
    assert sum(count for _, _, count in rows) == len(SAMPLES_MS)
    for low, high, count in rows:
        assert abs(((low <= SAMPLES_MS) & (high > SAMPLES_MS)).sum() - count) <= 1  # rounding at an edge


def test_nothing_has_no_quantile() -> None:
    assert (Latencies().quantile(0.5), list(Latencies().bars(4))) == (None, [])


def test_what_two_clocks_make_negative_counts_as_the_shortest() -> None:
    latencies = of([-0.5, 2.0])

    assert (latencies.lowest_ms, latencies.sum_ms) == (0.0, 2.0)
    assert latencies.quantile(0.5) == pytest.approx(0.001, rel=0.01)


def test_files_of_several_workers_fold_by_run_and_kind(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.json" for number in range(3)]
    for path, run_id, part in zip(paths, ("a", "a", "b"), np.array_split(SAMPLES_MS, 3), strict=True):
        tally = Tally("command", latencies={"applied": of(part)})
        tally.counts["sent"] = len(part)
        Result(run_id, 10.0, 2.0, tally).write(path)

    first, second = results.summed(map(results.read, paths))

    together = np.concatenate(np.array_split(SAMPLES_MS, 3)[:2])
    assert (first.run_id, first.rate, first.num_workers, second.run_id) == ("a", 20.0, 2, "b")
    assert first.tally.counts["sent"] == len(together)
    assert first.tally.main.bins == of(together).bins
    assert first.tally.main.highest_ms == together.max()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "expected the result of a load"),
        ("[]", "expected the result of a load"),
        ('{"esper_load": 2}', "esper_load"),
        ('"kind": "foo"', "kind of"),
        ('"counts": {"sent": -1}', "counts.sent of"),
        ('"bins": {"99999999": 1}', "bins"),
        ('"sum_ms": NaN', "sum_ms of"),
    ],
)
def test_a_file_that_does_not_hold_together_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    sound = tmp_path / "sound.json"
    Result("a", 1.0, 1.0, Tally("command", latencies={"applied": of([1.0])})).write(sound)
    path, text = tmp_path / "bad.json", content
    if content.startswith('"'):
        name = content[1:].partition('"')[0]
        text = replaced(json.loads(sound.read_text()), name, content.partition(": ")[2])
    path.write_text(text)

    with pytest.raises(SettingError, match=expected):
        results.read(path)


def replaced(fields: dict[str, object], name: str, value: str) -> str:
    """The fields with this one changed, wherever it stands, as JSON."""
    inner = json.loads(json.dumps(fields))
    place = inner if name in inner else inner["latencies"]["applied"]
    place[name] = "HERE"
    return json.dumps(inner).replace('"HERE"', value)
