"""What each role shows at /metrics follows Prometheus's conventions, and is what the catalogue says."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client.metrics_core import Metric

from esper.bus.names import key
from esper.leyline.kinds import Role
from esper.runtime.operations.catalogue import MEASURED, METRICS, counter
from tests.export_kit import aggregate, say
from tests.metrics_kit import STANDARD, TOLD, checks, families, got, known, metric_names, serving, trainers
from tests.scripted import ScriptedRun

ROWS = {row.name: row for row in METRICS}
SCALED = re.compile(r"_(ns|us|ms|s|milliseconds|microseconds|minutes|hours|kb|mb|gb|kilobytes|megabytes|percent)(_|$)")
BEGUN = {role: "esper_rounds_total" if role == "coordinator" else "" for role in TOLD}
"""Of several coordinators all but one stand by: what one shows that leads."""
MOST_SERIES = 60
"""Of one family in one process of a small run: labels name streams, groups, stages, reasons, and nothing unbounded."""


def misnamed(family: Metric) -> list[str]:
    """What promtool's `check metrics` complains of, and what our own table does not know."""
    name, is_counter = family.name, family.type == "counter"
    shown = f"{name}_total" if is_counter else name
    broken = {
        "no help": not family.documentation.strip(),
        "a colon, which is for rules": ":" in name,
        "capital letters": name != name.lower(),
        "a unit that is no base unit": SCALED.search(name) is not None,
        "the type in its name": re.search(r"_(gauge|counter|histogram|summary)$", name) is not None,
        "_total, and is no counter": name.endswith("_total"),
        "not in the catalogue": not shown.startswith((*STANDARD, *MEASURED)) and shown not in ROWS,
        "more series than are bounded": len(family.samples) > MOST_SERIES * (40 if family.type == "histogram" else 1),
    }
    return [f"{shown}: {what}" for what, is_so in broken.items() if is_so]


def mislabelled(family: Metric) -> list[str]:
    row = ROWS.get(f"{family.name}_total" if family.type == "counter" else family.name)
    labels = {label for sample in family.samples for label in sample.labels} - {"le"}
    return [] if row is None or not family.samples or labels == set(row.labels) else [f"{family.name}: {labels}"]


@pytest.mark.parametrize("role", TOLD)
async def test_a_process_shows_what_the_catalogue_says_of_its_role(
    role: str, run: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(run, aggregate(1, loss=[1.0, 2.0], step_ms=[3.0]))
    await run.beat(1)

    async with serving(role, run, tmp_path, monkeypatch, BEGUN[role]) as port:
        _, body = await got(port, "/metrics")
        live, ready = await checks(port, "/healthz"), await checks(port, "/readyz")

    shown = families(body)
    assert [what for family in shown for what in misnamed(family) + mislabelled(family)] == []
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in shown}
    expected = {row.name for row in METRICS if role in row.roles or row.roles == "every role"}
    assert {name for name in names if name in ROWS} == expected
    assert (live[0], ready[0]) == (200, 200)
    assert {"redis", "clock", "keyring"} <= ready[1].keys() and "fail" not in ready[1].values()


async def test_a_coordinator_that_stands_by_answers_for_itself(
    run: ScriptedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving("coordinator", run, tmp_path, monkeypatch):
        async with asyncio.timeout(120):
            while not await run.redis.xlen(key(run.run_id, "decisions")):  # until it has announced that it leads
                pass
        (tmp_path / "second").mkdir()
        async with serving("coordinator", run, tmp_path / "second", monkeypatch) as port:
            ready = await checks(port, "/readyz")

    assert ready[0] == 200 and ready[1].keys() == {"redis", "clock", "keyring"}  # and no stream that it would read


async def test_the_runtime_shows_the_figures_of_its_trainer(run: ScriptedRun) -> None:
    shown = await trainers(run)

    assert [what for family in shown for what in misnamed(family) + mislabelled(family)] == []
    values = {sample.name: sample.value for family in shown for sample in family.samples}
    assert (values["esper_trainer_step"], values["esper_trainer_loss"]) == (7.0, 0.5)
    assert (values["esper_trainer_packets_total"], values["esper_trainer_seeds"]) == (3.0, 1.0)
    names = {f"{family.name}_total" if family.type == "counter" else family.name for family in shown}
    assert {row.name for row in METRICS if row.roles == "runtime"} <= names


def test_the_catalogue_names_each_metric_once_with_its_unit_behind() -> None:
    assert len(ROWS) == len(METRICS)
    assert [name for name in ROWS if not re.fullmatch(r"esper_[a-z]+(_[a-z]+)*", name)] == []
    assert [row.name for row in METRICS if row.name.endswith("_total") != (row.kind == "counter")] == []
    assert [row.name for row in METRICS if {"le", "id", "command_id", "entry_id"} & set(row.labels)] == []
    with pytest.raises(KeyError):
        counter("esper_ready")


def test_the_page_lists_the_catalogue() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "health.md").read_text()
    table = page.partition("<!-- table: esper.runtime.operations.catalogue")[2].partition("<!-- end -->")[0]

    listed = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[3:]]

    assert listed == [[f"`{row.name}`", row.kind, ", ".join(row.labels), row.roles, row.text] for row in METRICS]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (worker) (rate(esper_a_total{run=~"$run", x="esper_b"}[5m])) > 0', {"esper_a_total"}),
        ("esper_a / on(instance) group_left(role) esper_b and up == 0", {"esper_a", "esper_b", "up"}),
        ("histogram_quantile(0.9, sum by (le) (rate(esper_c_bucket[$__rate_interval])))", {"esper_c_bucket"}),
        ("time() - esper_d_timestamp_seconds > 1e3", {"esper_d_timestamp_seconds"}),
    ],
)
def test_names_are_read_out_of_an_expression(expression: str, names: set[str]) -> None:
    assert metric_names(expression) == names


def test_a_histogram_is_known_by_its_parts() -> None:
    assert known("esper_round_latency_seconds_bucket") and known("esper_metric_loss_sum")
    assert not known("esper_round_latency_seconds") and not known("esper_nothing_total")
    assert Role.OBSERVER in {keys for _, keys, _ in TOLD.values()}
