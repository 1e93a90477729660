"""Names of keys, and the table of who writes and reads them."""

from __future__ import annotations

import re

import pytest

from esper.bus import names
from esper.errors import SettingError


def test_keys_carry_the_run_as_hash_tag() -> None:
    assert names.key("digits-0a1b2c3d", "votes") == "esper:{digits-0a1b2c3d}:votes"
    assert names.region_key("digits-0a1b2c3d", "east", "telemetry") == "esper:{digits-0a1b2c3d/east}:telemetry"


def test_dead_letters_of_every_region_go_to_the_run() -> None:
    assert names.dead_of("esper:{r-1/east}:telemetry") == "esper:{r-1}:dead"
    assert names.dead_of("esper:{r-1}:votes") == "esper:{r-1}:dead"


def test_a_key_beside_a_stream_shares_its_slot() -> None:
    assert names.beside("esper:{r-1/east}:telemetry", "settled:x") == "esper:{r-1/east}:settled:x"


def test_run_ids_are_the_name_and_eight_hex_digits_and_differ() -> None:
    made = {names.new_run_id("digits") for _ in range(4)}

    assert len(made) == 4
    assert all(re.fullmatch(r"digits-[0-9a-f]{8}", run_id) for run_id in made)


@pytest.mark.parametrize("name", ["", "a/b", "a}b", "../x", "a b", "-a", "x" * 41, "a\n"])
def test_a_name_that_cannot_stand_in_a_key_or_a_path_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match="expected 1 to 40 letters"):
        names.checked_name("run", name)


def test_every_stream_has_one_row_and_only_what_one_group_settles_is_trimmed_as_soon() -> None:
    rows = {row.name: row for row in names.STREAMS}

    assert len(rows) == len(names.STREAMS)
    assert set(rows) == {
        *("commands", "optimizer", "receipts", "votes", "decisions", "heartbeats", "emergency", "dead", "global"),
        *("telemetry", "regional", "state"),
    }
    assert {row.name for row in names.STREAMS if row.regional} == {"telemetry", "regional"}
    shared = {row.name for row in names.STREAMS if row.group in ("coordinator", "regional", "global")}
    plain = {row.name for row in names.STREAMS if row.group.startswith("none")}
    assert {row.name for row in names.STREAMS if row.trimming == names.SETTLED} == shared
    assert {row.name for row in names.STREAMS if row.trimming == names.BOUNDED} == plain - {"receipts", "emergency"}
