"""Alert rules are valid, ask for figures that some process shows, say what to do, and fire where they should."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics_kit import known, unknown

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "prometheus"
RULES, TESTS = FOLDER / "rules" / "esper.yml", FOLDER / "tests" / "esper.yml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on PATH (Debian: apt install prometheus)")


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def alerts() -> list[dict[str, Any]]:
    return [rule for group in loaded(RULES)["groups"] for rule in group["rules"]]


def test_every_alert_is_whole() -> None:
    names = [alert["alert"] for alert in alerts()]

    assert len(set(names)) == len(names) > 15
    for alert in alerts():
        assert alert.keys() <= {"alert", "expr", "for", "labels", "annotations"}, alert["alert"]
        assert alert["alert"].startswith("Esper") and alert["labels"]["severity"] in ("warning", "critical")
        assert alert["annotations"].keys() == {"summary", "description"} and all(alert["annotations"].values())


def test_every_figure_that_an_alert_asks_for_is_shown_by_some_process() -> None:
    assert unknown(alert["expr"] for alert in alerts()) == set()
    assert not known("esper_nobody_shows_this")


def test_every_alert_has_a_test_where_it_fires_and_one_where_it_waits() -> None:
    tests = {each["name"]: each["promql_expr_test"] for each in loaded(TESTS)["tests"]}
    well = tests.pop("nothing fires where all is well")

    assert tests.keys() == {alert["alert"] for alert in alerts()}
    assert [name for name, asked in tests.items() if [bool(one["exp_samples"]) for one in asked] != [False, True]] == []
    assert [(one["expr"], one["exp_samples"]) for one in well] == [("ALERTS", [])]


def test_what_is_scraped_is_what_compose_starts() -> None:
    services = loaded(ROOT / "compose.yaml")["services"]
    [scrape] = loaded(FOLDER / "prometheus.yml")["scrape_configs"]
    targets = [target for each in scrape["static_configs"] for target in each["targets"]]

    assert {"image", "volumes", "ports"} <= services["prometheus"].keys()
    assert sorted(targets) == sorted(
        f"{name}:9100"
        for name, service in services.items()
        if service.get("image") == "esper" and service.get("environment", {}).get("ESPER_NAME")
    )
    assert {each["labels"]["role"] for each in scrape["static_configs"]} == {
        "coordinator",
        "regional",
        "global",
        "exporter",
        "runtime",
    }


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [("check", "rules", RULES), ("check", "config", FOLDER / "prometheus.yml"), ("test", "rules", TESTS)],
    ids=lambda words: " ".join(words[:2]),
)
def test_promtool_agrees(words: tuple[Any, ...]) -> None:
    answer = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, timeout=150)

    assert answer.returncode == 0, answer.stdout + answer.stderr
