"""What is said of blueprints: manifests for the coordinator, a table for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esper.kernels.blueprints import BLUEPRINTS, BlueprintRange

PAGE = Path(__file__).resolve().parent.parent / "docs" / "blueprints.md"
PARAMETERS = {
    "noop": [],
    "norm": [],
    "lora": [("rank", 4, 1, 64)],
    "mlp": [("hidden", 32, 1, 65536)],
    "depthwise": [("radius", 1, 1, 7)],
    "conv1x1": [],
    "conv3x3": [],
    "se": [("reduction", 4, 1, 64)],
    "attention": [("heads", 4, 1, 64), ("causal", 1, 0, 1)],
}


def test_a_manifest_says_what_the_blueprint_is() -> None:
    manifests = {name: blueprint.manifest() for name, blueprint in BLUEPRINTS.items()}
    said = {
        name: [(row.name, row.default_value, row.minimum, row.maximum) for row in manifest.parameters]
        for name, manifest in manifests.items()
    }

    assert said == PARAMETERS
    assert all(row.integer for manifest in manifests.values() for row in manifest.parameters)
    assert {manifest.schema_version for manifest in manifests.values()} == {1}
    assert len({bytes.fromhex(manifest.digest) for manifest in manifests.values()}) == len(PARAMETERS)


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"code": "other code"},
        {"blueprint_id": "lora2"},
        {"parameters": (BlueprintRange("rank", 8, 1, 64),)},
        {"parameters": (BlueprintRange("rank", 4, 1, 65),)},
    ],
)
def test_the_digest_changes_with_whatever_changes_the_seed(change: dict[str, object]) -> None:
    lora = BLUEPRINTS["lora"]

    assert replace(lora, **change).digest != lora.digest  # type: ignore[arg-type]
    assert replace(lora).digest == lora.digest


def test_the_table_of_blueprints_is_the_one_in_the_code() -> None:
    lines = PAGE.read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("<!-- table: esper.kernels"))
    rows = [line.strip("| ").split(" | ") for line in lines[start + 3 : lines.index("<!-- end -->")]]

    assert [row[0].strip("`") for row in rows] == list(BLUEPRINTS)
    for row, blueprint in zip(rows, BLUEPRINTS.values(), strict=True):
        assert row[1].startswith(blueprint.summary)
        for each in blueprint.parameters:
            assert f"`{each.name}` {each.default:g}, {each.minimum:g} to {each.maximum:g}" in row[2]
