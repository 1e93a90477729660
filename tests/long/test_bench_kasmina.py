"""Arms of bench/kasmina.py that do the same work come to the same, and those that do not are never asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

AT = ("optimizers:one_for_all", "fused")
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from esper.bench.agreement import DisagreementError  # noqa: E402
from esper.bench.row import Comparison  # noqa: E402
from esper.bench.timing.opened import agree, opened  # noqa: E402
from kasmina_rows import table  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("row", [table.OPTIMIZERS, table.PRUNED, table.MEASURED, table.MASKS], ids=lambda row: row.name)
def test_arms_that_do_the_same_agree(row: Comparison) -> None:
    with opened(row, row.arms) as ready:
        agree(row, ready)


def test_an_optimizer_that_is_a_step_ahead_is_refused() -> None:
    row = replace(table.OPTIMIZERS, arms=(table.arm("one", *AT), table.arm("ahead", *AT)))
    with opened(row, row.arms) as ready:
        backward = ready["ahead"].before
        assert backward is not None
        backward()
        ready["ahead"].call()

        with pytest.raises(DisagreementError, match="ahead does not come to what one comes to"):
            agree(row, ready)
