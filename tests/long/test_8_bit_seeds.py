"""Seeds whose optimizer keeps its state in 8 bits, by torchao: `make test-torchao`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from esper.errors import CheckpointError
from esper.tolaria.checkpoints import wrapped
from tests.checkpoint_kit import Training
from tests.seed_kit import Op, equal
from tests.session_kit import on_seed, own_optimizer

pytest.importorskip("torchao", reason="the extra 'torchao' is not installed: make test-torchao")

HIDDEN = 512.0  # of eight inputs: 4,096 weights, of which no fewer have state in 8 bits


def grown(folder: Path) -> Training:
    """With a checkpoint before its newest step."""
    run, optimizer = Training(folder), own_optimizer("s0", 0.02)
    optimizer.hyperparameters["state_bits"] = 8
    germinate = on_seed(Op.SEED_OP_GERMINATE, "s0", site="body", blueprint_id="mlp")
    germinate.seed_command.parameters["hidden"] = HIDDEN
    run.train(1)
    _, made, _ = run.order(germinate, optimizer, on_seed(Op.SEED_OP_START_TRAINING, "s0"))
    assert made.detail.startswith("AdamW8bit of 4 parameters")
    run.train(4)
    run.checkpoints.save(run.step)
    return run


def everything(run: Training) -> dict[str, Tensor]:
    """Weights of host and seed, and what the seed's optimizer remembers, as the bytes that it is held in."""
    module = run.executor.seeds["s0"].module
    assert module is not None
    found = {**run.host.state_dict(), **{f"s0/{name}": each for name, each in module.state_dict().items()}}
    for name, state in enumerate(run.checkpoints.state.optimizers.dump()["seeds"]["s0"]["moments"]):
        for key, value in state.items():
            parts = value.__tensor_flatten__()[0] if is_traceable_wrapper_subclass(value) else []
            found |= {f"s0/{name}/{key}/{part}": getattr(value, part) for part in parts}
            found |= {} if parts else {f"s0/{name}/{key}": torch.as_tensor(value)}
    return {name: each.detach().clone() for name, each in found.items()}


def test_a_resumed_run_trains_on_bit_for_bit(tmp_path: Path) -> None:
    first = grown(tmp_path)
    saved_at = first.step
    first.train(5)

    again = Training(tmp_path)
    place = again.checkpoints.resume()
    assert place is not None and place.step == saved_at
    again.step = place.step
    again.train(5)

    assert torch.uint8 in {each.dtype for each in everything(again).values()}
    assert equal(everything(again), everything(first))


def test_a_rollback_from_disk_brings_back_each_bit(tmp_path: Path) -> None:
    run = grown(tmp_path)
    saved_at, before = run.step, everything(run)
    run.train(5)

    run.roll_back(saved_at)

    assert equal(everything(run), before)


def test_where_torchao_is_missing_the_checkpoint_is_refused_with_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown(tmp_path)
    monkeypatch.setitem(wrapped.HOMES, "OptimState8bit", "torchao_that_is_not_here.optim")

    with pytest.raises(CheckpointError, match="its state holds a OptimState8bit, which needs torchao_that_is_not_here"):
        Training(tmp_path).checkpoints.resume()
