"""Two processes under DistributedDataParallel measure, prune and undo alike."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.system.processes import Start, ended_well
from tests.system.pruned import KEPT, NUM_STEPS, WORLD, batch, model, train


def test_both_ranks_prune_the_same_and_undo_it_before_the_same_step(tmp_path: Path, ranks: Start) -> None:
    log = tmp_path / "other.log"
    other = ranks("tests.system.pruned", log, {"FOLDER": str(tmp_path)})
    try:
        train(0, str(tmp_path))  # here: one process less
        ended_well([other], [log])
    finally:
        other.kill()  # this one would wait at its end for one that waits for it

    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(WORLD))

    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    pruned = [not first[f"step {step}"][~KEPT].any() for step in range(1, NUM_STEPS)]
    assert pruned == [False] * 4 + [True] * 3 + [False] * 4
    torch.testing.assert_close(first["taylor"], expected(), rtol=1e-5, atol=0.0)


def expected() -> torch.Tensor:
    """Taylor of the first layer over four steps of the mean gradient, by hand."""
    host = model().double()
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    total = torch.zeros(6, dtype=torch.float64)
    for step in range(1, 5):
        optimizer.zero_grad()
        for rank in range(WORLD):
            torch.autograd.backward(host(batch(rank, step).double()).square().mean() / WORLD)
        for p in host[0].parameters():
            assert p.grad is not None
            total += (p.detach() * p.grad).abs().reshape(6, -1).sum(1)
        optimizer.step()
    return (total / 4).float()
