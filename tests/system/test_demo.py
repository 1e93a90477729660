"""`esper demo` as a newcomer runs it, once; each test looks at another side of what it left."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import wait_until
from tests.pages import typed_by
from tests.system.processes import PATIENCE_S, Esper, ends_by_ctrl_c, logs_of, processes, runs_of

LONGEST_S = 120.0
SHOWN = [command.split()[1:] for block in typed_by("tests/system/test_demo.py") for command in block.commands]
"""What the pages say to type: as they have it, and with its summary as JSON."""
GROWN = ["GERMINATED", "TRAINING", "BLENDING", "SHADOWING", "PROBATIONARY", "FOSSILIZED"]

# The form of summary.json, as the issue gives it: a type stands for any value of it, a list for any number of its item.
STAGE = {"stage": str, "step": int, "gate": (str, None), "passed": bool, "evidence": {str: float}}
GAIN = {"mean": float, "low": float, "high": float, "batches": int}
SEED = {"id": str, "site": str, "blueprint": str, "stage": str, "history": [STAGE], "paired_gain": (GAIN, None)}
FORM = {
    "run": str,
    "ok": bool,
    "wall_s": float,
    "world_size": int,
    "steps": int,
    "epochs": int,
    "data": {"name": str, "train": int, "test": int},
    "accuracy": {"host_before": float, "final": float},
    "seeds": [SEED],
    "commands": {"published": int, "applied": int, "rejected": {str: int}},
    "telemetry": dict.fromkeys(("packets", "regional", "global", "counted", "shed", "gaps", "duplicates"), int),
    "barriers": {"committed": int, "aborted": int, "deviations": int, "latency_ms": {"p50": float, "p99": float}},
    "replicas_equal": bool,
    "parameter_digest": str,
}


@dataclass(frozen=True)
class Demo:
    """One finished demo: how it ended, what it said, and what was there right after."""

    status: int
    wall_s: float
    said: str
    summary: dict[str, Any]
    logs: dict[str, str]
    processes: dict[int, str]
    runs: list[str]
    place: Path


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """A demo in a place of its own."""
    place = Path(tempfile.mkdtemp(prefix="esper-"))
    began = time.monotonic()
    command = Esper(place, *SHOWN[0], told={"PYTHONWARNINGS": "always::ResourceWarning"})
    try:
        status = command.ended(LONGEST_S + 60)
        wall_s = time.monotonic() - began
        [path] = place.glob("runs/*/summary.json")
        summary = json.loads(path.read_text())
        yield Demo(status, wall_s, command.text, summary, logs_of(place), processes(place), runs_of(place), place)
    finally:
        command.kill()
        shutil.rmtree(place, ignore_errors=True)


def test_each_process_closes_what_it_opened(demo: Demo) -> None:
    said = {"demo": demo.said, **demo.logs}

    assert {name: text for name, text in said.items() if "ResourceWarning" in text} == {}


def test_it_succeeds_in_time(demo: Demo) -> None:
    assert demo.status == 0, demo.said
    assert demo.summary["ok"] is True
    assert demo.wall_s <= LONGEST_S
    assert 0 < demo.summary["wall_s"] <= demo.wall_s


def test_asked_for_json_it_comes_up_and_ctrl_c_before_anything_runs_ends_it(
    esper: Callable[..., Esper], runtime: Path
) -> None:
    """The whole of it is the same run as the other one."""
    [_, words] = SHOWN
    command = esper(*words)
    wait_until(lambda: bool(runs_of(runtime)), "a run is listed", PATIENCE_S)

    assert ends_by_ctrl_c(command) == 130, command.text


def test_its_summary_has_the_form_of_the_issue(demo: Demo) -> None:
    assert list(misfits(demo.summary, FORM, "summary")) == []


def test_the_two_good_seeds_grow_through_every_stage_on_evidence(demo: Demo) -> None:
    fossils = [seed for seed in demo.summary["seeds"] if seed["stage"] == "FOSSILIZED"]

    assert {(seed["blueprint"], seed["site"]) for seed in fossils} == {("lora", "hidden"), ("mlp", "head")}
    for seed in fossils:
        assert walked(seed) == GROWN
        assert passed_gates(seed) == ["G0", "G1", "G2", "G3", "G4"]
        assert seed["paired_gain"]["low"] > 0
        assert seed["paired_gain"]["low"] <= seed["paired_gain"]["mean"] <= seed["paired_gain"]["high"]


def test_the_bad_seed_is_culled_and_its_slot_freed(demo: Demo) -> None:
    [bad] = [seed for seed in demo.summary["seeds"] if seed["id"] == "bad"]

    assert walked(bad) == ["GERMINATED", "TRAINING", "CULLED", "EMBARGOED", "RESETTING", "DORMANT"]
    assert bad["stage"] == "DORMANT"


def test_a_history_never_goes_back_in_time(demo: Demo) -> None:
    for seed in demo.summary["seeds"]:
        steps = [record["step"] for record in seed["history"]]

        assert steps == sorted(steps)
        assert steps[0] > 0 and steps[-1] <= demo.summary["steps"]


def test_the_model_is_better_with_its_seeds(demo: Demo) -> None:
    accuracy = demo.summary["accuracy"]

    assert 0.1 < accuracy["host_before"] < accuracy["final"] <= 1.0


def test_every_packet_is_counted_once(demo: Demo) -> None:
    told = demo.summary["telemetry"]

    assert told["counted"] == told["packets"] - told["shed"]
    assert told["gaps"] == 0
    assert told["packets"] == demo.summary["world_size"] * demo.summary["steps"]
    assert told["packets"] > told["regional"] > 0 < told["global"]


def test_hostile_commands_are_refused_and_the_good_ones_applied(demo: Demo) -> None:
    commands = demo.summary["commands"]

    assert {reason: commands["rejected"].get(reason) for reason in ("bad_seal", "replayed", "stale")} == {
        "bad_seal": 1,
        "replayed": 1,
        "stale": 1,
    }
    assert commands["published"] == commands["applied"] + sum(commands["rejected"].values())


def test_replicas_agree_at_every_barrier_and_at_the_end(demo: Demo) -> None:
    rounds = demo.summary["barriers"]

    assert rounds["committed"] > 0
    assert rounds["deviations"] == 0
    assert rounds["aborted"] < rounds["committed"]  # without effect: where a machine stalls, a rank votes too late
    assert demo.summary["replicas_equal"] is True
    assert len(bytes.fromhex(demo.summary["parameter_digest"])) == 32


def test_it_leaves_no_process_and_no_run_behind(demo: Demo) -> None:
    assert demo.processes == {}
    assert demo.runs == []


def test_nothing_it_says_is_a_traceback(demo: Demo) -> None:
    assert "Traceback" not in demo.said
    assert [name for name, text in demo.logs.items() if "Traceback" in text] == []
    assert {"coordinator.log", "controller.log", "hostile.log", "trainer-0.log", "trainer-1.log"} <= set(demo.logs)


def test_it_shows_the_run_as_it_goes(demo: Demo) -> None:
    for word in ("waiting for the workers", "growing seeds", "refusing hostile commands", "mlp=TRAINING", "accuracy"):
        assert word in demo.said


def test_it_says_last_how_its_report_is_written(demo: Demo) -> None:
    words = demo.said.splitlines()[-1].partition("esper ")[2].split()
    done = Esper(demo.place, *words, "--out", demo.place / "report.html")
    try:
        assert done.ended() == 0, done.text
    finally:
        done.kill()
    assert demo.summary["run"] in (demo.place / "report.html").read_text()


def test_its_log_is_sound_and_replayed_comes_to_the_same_parameters(demo: Demo) -> None:
    told = []
    for command in ("verify", "replay"):
        done = Esper(demo.place, command, "demo", "--runs-dir", demo.place / "runs", "--json")
        try:
            assert done.ended() == 0, done.text
        finally:
            done.kill()
        told.append(json.loads(done.said[-1]))

    assert told[0]["findings"] == 0
    assert told[0]["seals_checked"] is True
    assert told[1]["replayed"] == [demo.summary["parameter_digest"]] * 2
    assert (told[1]["differences"], told[1]["warnings"]) == ([], [])


def walked(seed: dict[str, Any]) -> list[str]:
    """Stages in the order in which they were entered; a gate that held keeps the seed where it is."""
    stages: list[str] = []
    for record in seed["history"]:
        if record["passed"]:
            stages.append(record["stage"])
        else:
            assert record["stage"] == stages[-1]
    return stages


def passed_gates(seed: dict[str, Any]) -> list[str]:
    return [record["gate"].partition("_")[0] for record in seed["history"] if record["gate"] and record["passed"]]


def misfits(value: Any, form: Any, at: str) -> Iterator[str]:
    """Where a value has not the form, keys included."""
    match form:
        case tuple():
            if not any(not list(misfits(value, each, at)) for each in form):
                yield f"{at}: {value!r}"
        case list():
            for index, item in enumerate(value):
                yield from misfits(item, form[0], f"{at}[{index}]")
        case dict() if set(form) == {str}:
            for name, item in value.items():
                yield from misfits(item, form[str], f"{at}.{name}")
        case dict():
            if not isinstance(value, dict) or set(value) != set(form):
                yield f"{at}: {value!r}"
                return
            for name, item in value.items():
                yield from misfits(item, form[name], f"{at}.{name}")
        case None:
            if value is not None:
                yield f"{at}: {value!r}"
        case _:
            if type(value) is not form:
                yield f"{at}: {value!r}"
