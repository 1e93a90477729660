"""The dashboard can be provisioned as it is: its panels do not overlap and ask for figures that are shown."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.metrics_kit import metric_names, unknown

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboards" / "esper.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
DRAWN = [panel for panel in PANELS if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in DRAWN for target in panel["targets"]]
NUM_COLUMNS = 24


def provisioned(folder: str, file: str) -> Any:
    return yaml.safe_load((FOLDER / "provisioning" / folder / file).read_text())


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    across = one["x"] < other["x"] + other["w"] and other["x"] < one["x"] + one["w"]
    return across and one["y"] < other["y"] + other["h"] and other["y"] < one["y"] + one["h"]


def test_panels_have_their_place_and_their_number_alone() -> None:
    places = [panel["gridPos"] for panel in PANELS]

    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert [
        place for place in places if place["x"] < 0 or place["x"] + place["w"] > NUM_COLUMNS or place["h"] < 1
    ] == []
    assert [pair for pair in combinations(places, 2) if overlap(*pair)] == []


def test_every_panel_says_what_it_shows_and_in_which_unit() -> None:
    assert [panel["title"] for panel in DRAWN if not panel["description"]] == []
    assert [panel["title"] for panel in DRAWN if not panel["fieldConfig"]["defaults"]["unit"]] == []
    assert {panel["type"] for panel in PANELS} <= {"row", "stat", "table", "timeseries"}
    letters = [[target["refId"] for target in panel["targets"]] for panel in DRAWN]
    assert [each for each in letters if not each or len(set(each)) != len(each)] == []


def test_every_figure_that_a_panel_asks_for_is_shown_by_some_process() -> None:
    variables = [each["definition"].removeprefix("label_values(") for each in DASHBOARD["templating"]["list"]]

    assert unknown(query.replace("ALERTS", "up") for query in QUERIES) == set()
    assert unknown(each.partition(",")[0] for each in variables) == set()
    assert len(set().union(*map(metric_names, QUERIES))) > 25


def test_a_counter_is_drawn_as_a_rate_over_what_grafana_scrapes() -> None:
    drawn = [query for panel in DRAWN if panel["type"] == "timeseries" for query in _queries(panel)]

    bare = [query for query in drawn if "_total" in query and "rate(" not in query and "increase(" not in query]
    fixed = [query for query in drawn if "rate(" in query and "[$__rate_interval]" not in query]
    assert (bare, fixed) == ([], [])


def test_variables_and_data_source_are_those_that_exist() -> None:
    [source] = provisioned("datasources", "prometheus.yml")["datasources"]
    names = {each["name"] for each in DASHBOARD["templating"]["list"]}
    used = [panel["datasource"]["uid"] for panel in DRAWN]
    used += [target["datasource"]["uid"] for panel in DRAWN for target in panel["targets"]]

    assert set(used) == {source["uid"]} and source["type"] == "prometheus"
    asked = {word for query in QUERIES for word in _variables(query)}
    assert asked == names


def test_grafana_finds_the_dashboard_where_compose_puts_it() -> None:
    grafana = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["grafana"]
    [provider] = provisioned("dashboards", "esper.yml")["providers"]
    mounted = {volume.split(":")[1]: volume.split(":")[0] for volume in grafana["volumes"]}

    assert (ROOT / mounted[provider["options"]["path"]] / "esper.json").is_file()
    assert (ROOT / mounted["/etc/grafana/provisioning"] / "datasources").is_dir()
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"] and home.name == "esper.json"
    assert DASHBOARD["uid"] == "esper-run" and DASHBOARD["schemaVersion"] >= 36


def _queries(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def _variables(query: str) -> list[str]:
    return [name for name in re.findall(r"\$(\w+)", query) if not name.startswith("__")]
