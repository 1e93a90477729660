"""The rows of the telemetry's tiers fold in every form what they were given, beside the bare loop and numpy alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from bus_arms.traffic import sealer  # noqa: E402
from bus_rows.served import measured  # noqa: E402
from bus_rows.session import Amounts  # noqa: E402
from esper.bench.effort import EFFORTS  # noqa: E402
from esper.bus import connect  # noqa: E402
from esper.bus.embedded import EmbeddedRedis  # noqa: E402
from esper.leyline import contracts as pb  # noqa: E402
from esper.leyline.keys.keyring import MasterKeyring  # noqa: E402
from esper.leyline.kinds import Role  # noqa: E402
from telemetry_arms.flow import watch_global  # noqa: E402
from telemetry_arms.traffic import GLOBAL  # noqa: E402
from telemetry_rows import fold, latency  # noqa: E402
from tests.bus_kit import put  # noqa: E402


def test_the_rows_of_the_tiers_check_every_arm_of_every_form() -> None:
    found = list(measured("tiers-fold", fold.measure, {"quick": Amounts(num=1_024, rounds=1)}, EFFORTS["quick"]))

    told = {(figure.row, figure.arm) for figure in found if figure.label == "measured"}
    arms = ("ours", "bare", "bare again", "numpy")
    arms_of_the_processor = ("ours, processor", "bare, processor", "bare again, processor")
    forms = ("packets", "frames", "columns")
    assert told >= {(f"tiers-fold, tier 1, {form}", arm) for form in forms for arm in (*arms, *arms_of_the_processor)}
    assert all(figure.value for figure in found)


def test_the_row_of_the_latency_tells_how_many_packets_became_one_aggregate() -> None:
    amounts = Amounts(num=0, rounds=0, seconds=0.5)
    found = list(measured("tiers-latency", latency.measure, {"quick": amounts}, EFFORTS["quick"]))

    told = {figure.arm: figure for figure in found if figure.arm != "ours"}
    counted = told["counted"].value
    assert counted == told["sent"].num > 0
    for tier, most in (("tier 1", 32), ("both tiers", 32 * 32)):
        reached = told[tier].value
        assert reached is not None and 1 <= reached <= most
        assert reached * told[tier].num == pytest.approx(counted)


async def test_who_watches_waits_for_the_first_aggregate_however_late_the_tiers_begin(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    MasterKeyring.new(time.time_ns()).save(tmp_path / "master.json")
    made = pb.AggregatedTelemetry(version=1, num_packets=1, first_timestamp_ns=time.time_ns())
    async with connect.writer(server.url) as redis:
        await put(redis, GLOBAL, sealer(str(tmp_path), Role.GLOBAL).seal(made))

    taken = await watch_global(server.url, str(tmp_path), seconds=0.0)

    assert len(taken) == 1
