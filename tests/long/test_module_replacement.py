"""A script that puts another module in the place of a site's is told that seeds there do nothing."""

from __future__ import annotations

import pytest
import structlog
import torch
from torch import nn

from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, SETTINGS, Bench, Op, Reason, new_host, optimizer_of
from tests.session_kit import train, unsteered

DETAIL = "the module that 'head' was at attach() is no part of the model any more; close() and attach() anew"
LOOKS = SETTINGS.walk_every


def test_a_seed_whose_site_was_replaced_asks_to_be_culled() -> None:
    bench = Bench()
    bench.train(1)
    assert bench.germinate("head").status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)

    bench.host.head = nn.Linear(6, 3)
    bench.train(LOOKS)

    [request] = bench.executor.requests()
    assert (request.operation, request.reason) == (Op.SEED_OP_CULL, Reason.REASON_UNKNOWN_SITE)
    assert request.detail == DETAIL


def test_a_seed_that_a_rollback_puts_back_there_asks_again() -> None:
    bench = Bench()
    bench.train(1)
    assert bench.germinate("head").status == APPLIED
    bench.do(Op.SEED_OP_START_TRAINING)
    kept = bench.executor.snapshot()
    bench.host.head = nn.Linear(6, 3)
    bench.train(LOOKS)

    bench.executor.restore(kept, bench.step + 1)
    put_back = bench.executor.requests()
    bench.train(LOOKS)

    assert put_back == []
    assert [request.detail for request in bench.executor.requests()] == [DETAIL]


def test_nothing_germinates_in_a_module_that_the_model_has_no_more() -> None:
    bench = Bench()
    bench.train(1)

    bench.host.head = nn.Linear(6, 3)
    outcome = bench.germinate("head")

    assert (outcome.reason, outcome.detail) == (Reason.REASON_NOT_SUPPORTED, DETAIL)
    assert bench.germinate("body").status == APPLIED


def test_it_is_said_once_in_the_log_and_as_an_event() -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    train(run, host, 1)

    host.head = nn.Linear(6, 3)
    with structlog.testing.capture_logs() as lines:
        train(run, host, 3 * LOOKS)

    table = run.exchange.rows.table()
    assert table is not None
    assert [(each.description, each.level) for each in table.events] == [
        ("site.displaced", pb.TelemetryLevel.TELEMETRY_WARNING)
    ]
    assert [line["detail"] for line in lines if line["event"] == "site.displaced"] == [DETAIL]


@pytest.mark.parametrize("wrapped", ["compiled", "held below", "under another name"])
def test_a_module_that_is_only_wrapped_or_moved_is_where_it_was(wrapped: str) -> None:
    bench = Bench()
    bench.train(1)
    if wrapped == "compiled":
        bench.host.head = torch.compile(bench.host.head, backend="eager")  # type: ignore[assignment]
    elif wrapped == "held below":
        bench.host.head = nn.Sequential(bench.host.head)  # type: ignore[assignment]
    else:
        bench.host.other, bench.host.head = bench.host.head, nn.Identity()  # type: ignore[assignment]

    assert bench.germinate("head").status == APPLIED


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's
def test_a_block_in_whose_place_is_a_scripted_one_has_its_sites_no_more() -> None:
    host, displaced = nn.Sequential(nn.Sequential(nn.Linear(8, 6))), list[str]()
    executor = Executor(host, ["0.0"], run_id="test-00000000")
    executor.on_displaced = lambda site, detail: displaced.append(site)

    host[0] = torch.jit.script(nn.Sequential(nn.Linear(8, 6)))
    executor.begin_step(executor.settings.walk_every, 0)

    assert displaced == ["0.0"]
