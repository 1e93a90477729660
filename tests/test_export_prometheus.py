"""What Prometheus scrapes: counters and histograms of the global tier that never fall, by its conventions."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from esper.cli.exporting import follow
from esper.errors import SettingError
from esper.narset.reduction import read_reduction
from esper.narset.running import BOUNDS, Running, checked_bounds
from esper.narset.totals import Totals, encode
from esper.runtime.exporters.exposition import Exposition
from esper.runtime.exporters.loop import Export
from esper.runtime.operations import metrics
from esper.runtime.operations.health import Health
from tests.export_kit import START_NS, aggregate, say, scraped, totals_key
from tests.scripted import ScriptedRun

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def text_of(run: ScriptedRun, found: tuple[Exposition, Export]) -> str:
    return generate_latest(registry_of(run, found)).decode()


def registry_of(run: ScriptedRun, found: tuple[Exposition, Export]) -> CollectorRegistry:
    registry = CollectorRegistry()
    follow(found[1], run.run_id, registry, Health())
    return registry


def samples(run: ScriptedRun, text: str) -> Samples:
    """By name and labels, without the run's; as Prometheus's own parser reads them."""
    read: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = dict(sample.labels)
            if not sample.name.startswith("esper_export"):
                assert labels.pop("run") == run.run_id
            key = (sample.name, frozenset(labels.items()))
            assert key not in read
            read[key] = sample.value
    return read


def figure(read: Samples, name: str, **labels: str) -> float:
    return read[name, frozenset(labels.items())]


async def test_counters_histograms_and_gauges_say_what_was_measured(run: ScriptedRun) -> None:
    losses = np.random.default_rng(1).exponential(size=100)
    await say(
        run, aggregate(1, loss=losses.tolist(), step_ms=[20.0, 40.0]), aggregate(2, loss=[1.0, 5.0, 3.5, math.nan])
    )

    read = samples(run, text_of(run, await scraped(run)))

    assert figure(read, "esper_telemetry_packets_total") == 104
    assert figure(read, "esper_telemetry_packets_shed_total") == 4
    assert figure(read, "esper_telemetry_packets_by_level_total", level="info") == 104
    assert figure(read, "esper_training_steps") == 20
    assert figure(read, "esper_telemetry_last_timestamp_seconds") == START_NS / 1e9 + 2
    every = np.array([*losses, 1.0, 5.0, 3.5])  # two of them at the end of a bucket, which has it
    for bound in (0.1, 0.5, 1.0, 5.0):
        assert figure(read, "esper_metric_loss_bucket", le=str(bound)) == (every <= bound).sum()
    assert figure(read, "esper_metric_loss_bucket", le="+Inf") == figure(read, "esper_metric_loss_count") == 103
    assert figure(read, "esper_metric_loss_sum") == pytest.approx(every.sum(), rel=1e-12)
    assert figure(read, "esper_latest_loss") == 3.5
    assert figure(read, "esper_non_finite_loss_total") == 1


async def test_of_an_aggregate_without_its_sketches_no_bucket_below_the_maximum_is_known(run: ScriptedRun) -> None:
    said = aggregate(1, loss=[1.0, 5.0, 3.5])
    said.metrics["loss"].ClearField("sketch")
    await say(run, said)

    read = samples(run, text_of(run, await scraped(run, (2.0, 5.0, 8.0))))

    told = [figure(read, "esper_metric_loss_bucket", le=bound) for bound in ("2.0", "5.0", "8.0", "+Inf")]
    assert told == [0, 3, 3, 3]
    assert figure(read, "esper_metric_loss_count") == 3


async def test_an_aggregate_of_a_sketch_that_can_not_be_read_is_gone_past(run: ScriptedRun) -> None:
    await scraped(run)  # what comes now is in no total
    torn = aggregate(1, loss=[1.0, 2.0])
    torn.metrics["loss"].sketch = torn.metrics["loss"].sketch[:-1]
    await say(run, torn, aggregate(2, loss=[1.0]))

    sink, export = await scraped(run)
    _, anew = await scraped(run)

    assert (export.num_refused, sink.figures.series["loss"].count) == (1, 1)
    assert anew.num_refused == 0


async def test_units_are_base_units(run: ScriptedRun) -> None:
    await say(run, aggregate(1, step_ms=[20.0, 40.0], memory_gb=[2.0], busy_percent=[30.0]))

    read = samples(run, text_of(run, await scraped(run)))

    assert figure(read, "esper_metric_step_seconds_sum") == pytest.approx(0.06)
    assert figure(read, "esper_metric_step_seconds_bucket", le="0.025") == 1
    assert figure(read, "esper_latest_memory_bytes") == 2e9
    assert figure(read, "esper_latest_busy_ratio") == pytest.approx(0.3)


async def test_labels_of_a_point_are_labels_and_names_that_meet_are_told_apart(run: ScriptedRun) -> None:
    made = aggregate(1, plain=[1.0])
    for name in ("fit{seed=s0,worker=worker-1}", "fit{seed=s1,worker=worker-1}", "a.b", "a b", 'odd{1x=say "hi"}'):
        made.metrics[name].CopyFrom(made.metrics["plain"])
    await say(run, made)

    read = samples(run, text_of(run, await scraped(run)))

    assert figure(read, "esper_metric_fit_count", seed="s0", worker="worker-1") == 1
    assert figure(read, "esper_metric_fit_count", seed="s1", worker="worker-1") == 1
    assert figure(read, "esper_metric_a_b_count", metric="a.b") == 1
    assert figure(read, "esper_metric_a_b_count", metric="a b") == 1
    assert figure(read, "esper_metric_odd_count", _1x='say "hi"') == 1


async def test_a_restarted_exporter_goes_on_and_counts_nothing_twice(run: ScriptedRun) -> None:
    await say(run, aggregate(1, loss=[1.0, 2.0]))
    await scraped(run)
    await say(run, aggregate(2, loss=[3.0]))

    read = samples(run, text_of(run, await scraped(run)))
    again = samples(run, text_of(run, await scraped(run)))

    assert figure(read, "esper_telemetry_packets_total") == figure(read, "esper_metric_loss_count") == 3
    assert figure(read, "esper_metric_loss_bucket", le="2.5") == 2
    ours = {key: value for key, value in read.items() if not key[0].startswith("esper_export")}
    assert ours.items() <= again.items()


async def test_the_first_one_begins_with_the_total_of_what_was_trimmed(run: ScriptedRun) -> None:
    told = [aggregate(number, loss=[float(number)] * 10) for number in (1, 2, 3)]
    total = read_reduction(told[0])
    for each in told[1:]:
        total.merge(read_reduction(each))
    folded = total.message("", 3, partial=False)
    await run.redis.hset(totals_key(run), mapping=encode(Totals(30, 3, 3, 6, 0, 0, folded)))  # type: ignore[arg-type]
    await say(run, *told[1:])  # the first one is gone from the stream
    await scraped(run)
    await say(run, aggregate(4, loss=[9.0]))

    read = samples(run, text_of(run, await scraped(run)))

    assert figure(read, "esper_telemetry_packets_total") == figure(read, "esper_metric_loss_count") == 31
    assert figure(read, "esper_metric_loss_bucket", le="2.5") == 20
    assert figure(read, "esper_metric_loss_sum") == 10 + 20 + 30 + 9


async def test_an_aggregate_that_comes_between_position_and_total_counts_once(run: ScriptedRun) -> None:
    told = [aggregate(number, loss=[1.0]) for number in (1, 2)]
    folded = aggregate(2, loss=[1.0, 1.0])
    await run.redis.hset(totals_key(run), mapping=encode(Totals(2, 2, 2, 0, 0, 0, folded)))  # type: ignore[arg-type]
    sink, _ = await scraped(run)
    sink.position, sink._through = "0-0", 2  # as if both entries had come after the look at the stream
    await say(run, *told, aggregate(3, loss=[1.0]), aggregate(1, loss=[1.0]))  # at last a tier that begins anew
    found, export = await _goes_on(run, sink)

    read = samples(run, text_of(run, (found, export)))

    assert figure(read, "esper_metric_loss_count") == 2 + 2


async def _goes_on(run: ScriptedRun, sink: Exposition) -> tuple[Exposition, Export]:
    await run.redis.hset(sink.record, mapping={"position": "0-0", "figures": sink.figures.dump(), "through": 2})
    return await scraped(run)


async def test_other_buckets_begin_with_the_total_anew(run: ScriptedRun) -> None:
    await say(run, aggregate(1, loss=[1.0]))
    await scraped(run)

    sink, _ = await scraped(run, (1.0, 2.0))

    assert list(sink.figures.bounds) == [1.0, 2.0]


def test_no_bucket_ever_falls_while_sketches_are_estimates() -> None:
    rng, running, values = np.random.default_rng(3), Running(), np.array([])
    before = [0] * len(BOUNDS)
    for number in range(1, 30):
        more = rng.lognormal(sigma=2.0, size=3000)  # far more than a sketch keeps
        values = np.append(values, more)
        running.add(aggregate(number, loss=more.tolist()))
        now = running.series["loss"].at_most

        assert all(a <= b for a, b in zip(before, now, strict=True))
        assert now == sorted(now)
        before = now

    true = np.array([(values <= bound).sum() for bound in BOUNDS])
    assert np.abs(np.array(before) - true).max() <= 2 * 0.0133 * len(values)


async def test_it_answers_over_http(run: ScriptedRun) -> None:
    await say(run, aggregate(1, loss=[1.0]))
    found = await scraped(run)
    registry = registry_of(run, found)

    async with await metrics.listen("127.0.0.1", 0, registry, Health()) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()

    assert head.startswith(b"HTTP/1.1 200 OK") and b"text/plain" in head
    assert figure(samples(run, body.decode()), "esper_telemetry_packets_total") == 1


@pytest.mark.parametrize("text", ["a", "1,1", "2,1", "inf", "nan", ","])
def test_bad_buckets_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="buckets"):
        checked_bounds(text)


def test_buckets_are_read() -> None:
    assert checked_bounds("0.1,1,10") == (0.1, 1.0, 10.0)
    assert checked_bounds("") == BOUNDS
