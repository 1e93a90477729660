"""JSON lines and TensorBoard event files hold each aggregate of the global tier once, whatever the exporter meets."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from esper.bus import names
from esper.errors import SettingError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime.exporters.files import held
from tests.export_kit import START_NS, aggregate, exported, say
from tests.scripted import ScriptedRun

KINDS = ["jsonl", "tensorboard"]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sequences(kind: str, path: Path, run: ScriptedRun) -> list[int]:
    """Numbers of the aggregates in the files, as a reader that is not ours finds them."""
    if kind == "jsonl":
        files = sorted(path.parent.glob(f"{path.name}*"), key=lambda each: (len(each.name), each.name), reverse=True)
        files = [*[each for each in files if each != path], *[path] * path.exists()]
        return [line["sequence"] for each in files for line in lines(each)]  # type: ignore[misc]
    return [event.step // 10 for event in events(path / run.run_id).Scalars("loss/mean")]


def events(folder: Path) -> EventAccumulator:
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0})
    return read.Reload()


def files_of(kind: str, path: Path, run: ScriptedRun) -> list[Path]:
    """Oldest first."""
    return [path] if kind == "jsonl" else sorted((path / run.run_id).glob("events.*"))


async def test_a_line_holds_what_its_aggregate_says_with_quantiles(run: ScriptedRun, tmp_path: Path) -> None:
    values = np.random.default_rng(1).normal(size=150)
    [entry_id] = await say(run, aggregate(1, loss=[*values, math.nan]))

    await exported(run, "jsonl", tmp_path / "run.jsonl")

    [line] = lines(tmp_path / "run.jsonl")
    loss = line["metrics"]["loss"]  # type: ignore[index]
    assert (line["entry_id"], line["sequence"], line["max_step"]) == (entry_id, 1, 10)
    assert (line["time"], line["num_packets"], line["num_shed"]) == ("2023-11-14T22:13:21.000+00:00", 151, 2)
    assert line["level_counts"] == {"INFO": 151}
    assert (loss["count"], loss["num_non_finite"], loss["min"], loss["max"]) == (150, 1, values.min(), values.max())
    assert loss["mean"] == pytest.approx(values.mean(), rel=1e-12)
    assert values.min() <= loss["p50"] <= np.quantile(values, 0.55) and loss["p50"] >= np.quantile(values, 0.45)


async def test_event_files_hold_scalars_and_distributions(run: ScriptedRun, tmp_path: Path) -> None:
    values = np.arange(100.0)
    await say(run, aggregate(1, loss=values.tolist()), aggregate(2, loss=[7.0]))

    await exported(run, "tensorboard", tmp_path)

    read = events(tmp_path / run.run_id)
    told = {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
    assert told == {
        "loss/mean": [(10, 49.5), (20, 7.0)],
        "loss/min": [(10, 0.0), (20, 7.0)],
        "loss/max": [(10, 99.0), (20, 7.0)],
        "loss/last": [(10, 99.0), (20, 7.0)],
    }
    assert [each.wall_time for each in read.Scalars("loss/mean")] == [START_NS / 1e9 + 1, START_NS / 1e9 + 2]
    first, second = (each.histogram_value for each in read.Histograms("loss/distribution"))
    assert (first.min, first.max, first.num, first.sum) == (0.0, 99.0, 100, 4950.0)
    assert first.sum_squares == pytest.approx((values**2).sum())
    expected, _ = np.histogram(values, bins=[0.0, *first.bucket_limit])
    assert len(first.bucket) == 30 and list(first.bucket) == pytest.approx(expected, abs=1)
    assert (second.bucket_limit, second.bucket) == ([7.0], [1])


async def test_an_event_file_takes_the_largest_step_and_value_that_a_worker_may_say(
    run: ScriptedRun, tmp_path: Path
) -> None:
    said = aggregate(1, loss=[1e308, -1e308, 5e-324])
    said.max_step = 2**64 - 1
    await say(run, said, aggregate(2, loss=[7.0]))

    await exported(run, "tensorboard", tmp_path)

    told = events(tmp_path / run.run_id).Scalars("loss/last")
    assert [(each.step, each.value) for each in told] == [(2**63 - 1, 0.0), (20, 7.0)]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_restarted_exporter_goes_on_where_it_was(kind: str, run: ScriptedRun, tmp_path: Path) -> None:
    path = tmp_path / "out"
    await say(run, *(aggregate(number, loss=[1.0]) for number in (1, 2, 3)))
    await exported(run, kind, path)
    await say(run, *(aggregate(number, loss=[1.0]) for number in (4, 5)))

    second = await exported(run, kind, path)
    third = await exported(run, kind, path)

    assert sequences(kind, path, run) == [1, 2, 3, 4, 5]
    assert (second.num_written, third.num_written) == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
async def test_cut_at_any_byte_its_end_is_written_again_once(kind: str, run: ScriptedRun, tmp_path: Path) -> None:
    await say(run, *(aggregate(number, loss=[1.0]) for number in (1, 2, 3)))
    path = tmp_path / "whole"
    await exported(run, kind, path)
    [whole] = [each.read_bytes() for each in files_of(kind, path, run)]

    for cut in range(0, len(whole), 97):
        path = tmp_path / f"cut-{cut}"
        torn = path if kind == "jsonl" else path / run.run_id / "events.out.tfevents.0000000001.esper"
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_bytes(whole[:cut])
        await exported(run, kind, path)

        assert sequences(kind, path, run) == [1, 2, 3], cut


@pytest.mark.parametrize("junk", [b"\0" * 700, b'{"entry_id": "1-1", "sequence": 9', b"\n\n"])
async def test_what_a_power_cut_left_behind_the_last_line_goes(run: ScriptedRun, tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "run.jsonl"
    await say(run, aggregate(1, loss=[1.0]))
    await exported(run, "jsonl", path)
    with path.open("ab") as file:
        file.write(junk)
    await say(run, aggregate(2, loss=[1.0]))

    await exported(run, "jsonl", path)

    assert sequences("jsonl", path, run) == [1, 2]


async def test_a_file_is_set_aside_at_its_size_and_nothing_is_lost_or_doubled(run: ScriptedRun, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for number in range(1, 7):
        await say(run, aggregate(number, loss=[1.0]))
        await exported(run, "jsonl", path, most_bytes=1000)  # two lines

    assert sequences("jsonl", path, run) == [1, 2, 3, 4, 5, 6]
    assert {each.name for each in tmp_path.glob("run*")} == {"run.jsonl.1", "run.jsonl.2", "run.jsonl.3"}


async def test_what_the_stream_no_longer_holds_is_counted_as_missing(run: ScriptedRun, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await say(run, aggregate(1, loss=[1.0]))
    await exported(run, "jsonl", path)
    await say(run, aggregate(4, loss=[1.0]), aggregate(5, loss=[1.0]), aggregate(1, loss=[1.0]))

    export = await exported(run, "jsonl", path)

    assert (export.num_missing, export.num_written) == (2, 3)


async def test_what_does_not_open_is_counted_and_passed_over_and_the_first_of_it_is_told(
    run: ScriptedRun, tmp_path: Path
) -> None:
    await run.redis.execute_command("XADD", names.key(run.run_id, "global"), "*", "m", b"junk")
    await run.say("global", Role.WORKER, "worker-0", pb.EmergencySignal(version=1, origin="worker-0"))
    await say(run, aggregate(1, loss=[1.0]))

    with capture_logs() as logs:
        export = await exported(run, "jsonl", tmp_path / "run.jsonl")

    assert (export.num_refused, export.num_written) == (2, 1)
    [told] = [line for line in logs if line["event"] == "export.refused"]
    assert told["why"].startswith("message of 4 bytes")


@pytest.mark.parametrize("kind", KINDS)
async def test_an_aggregate_of_a_sketch_that_can_not_be_read_is_refused(
    kind: str, run: ScriptedRun, tmp_path: Path
) -> None:
    torn = aggregate(2, loss=[1.0, 2.0])
    torn.metrics["loss"].sketch = torn.metrics["loss"].sketch[:-1]
    await say(run, aggregate(1, loss=[1.0]), torn, aggregate(3, loss=[1.0]))

    with capture_logs() as logs:
        export = await exported(run, kind, tmp_path / "run.jsonl")

    assert (export.num_refused, export.num_written) == (1, 2)
    assert sequences(kind, tmp_path / "run.jsonl", run) == [1, 3]
    [told] = [line for line in logs if line["event"] == "export.refused"]
    assert "sketch of " in told["why"]


async def test_a_second_exporter_of_one_file_is_refused(run: ScriptedRun, tmp_path: Path) -> None:
    with held(tmp_path, "run.jsonl"), pytest.raises(SettingError, match="no other exporter"):
        await exported(run, "jsonl", tmp_path / "run.jsonl")


@pytest.mark.parametrize("content", [b"a letter to a friend\n", b'{"name": "theirs"}\n', struct.pack("<Q", 9)])
async def test_a_file_of_somebody_else_is_left_as_it_is(run: ScriptedRun, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter"
    path.write_bytes(content)

    with pytest.raises(SettingError, match="a file of JSON lines"):
        await exported(run, "jsonl", path)

    assert path.read_bytes() == content
