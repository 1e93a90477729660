"""The handlers that docs/howto/attach.md shows for a loop of somebody else's."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from esper.session import Session
from tests.pages import ROOT, blocks
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import backward, on_seed, order, own_optimizer, train, unsteered


def grown(by_handlers: bool) -> tuple[Session, nn.Module]:
    """After 20 steps, in the last 15 of which a seed has trained."""
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    drive = train_by_handlers if by_handlers else train
    drive(run, host, 5)
    germination = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    order(run, germination, own_optimizer("s0", 0.01), on_seed(Op.SEED_OP_START_TRAINING))
    drive(run, host, 15)
    return run, host


def train_by_handlers(run: Session, host: nn.Module, num_steps: int) -> None:
    [shown] = [block for block in blocks(ROOT / "docs" / "howto" / "attach.md") if "__enter__()" in block.text]
    page: dict[str, Any] = {"run": run}
    exec(compile(shown.text, str(shown), "exec"), page)
    for _ in range(num_steps):
        page["on_batch_begins"]()
        loss = backward(host, run.step_number)
        run.optimizer.step()
        run.optimizer.zero_grad()
        page["on_batch_ended"](loss)


def test_handlers_that_open_and_close_steps_train_host_and_seed_as_a_loop_does() -> None:
    (by_handlers, one), (by_loop, other) = grown(True), grown(False)

    seeds = [[p.detach() for _, p in run.executor.seeds["s0"].trainable()] for run in (by_handlers, by_loop)]
    assert by_handlers.step_number == by_loop.step_number == 21
    assert all(torch.equal(*pair) for pair in zip(one.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(*pair) for pair in zip(*seeds, strict=True))
    assert any(bool(parameter.any()) for parameter in seeds[0][2:])  # it has learnt: at its start its output was zero
