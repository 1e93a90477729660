"""Runs of a host on any device; `python -m tests.far_trials NAME FILE` has one on the far device and writes it down."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import esper
from esper.bench.device import DEVICE
from esper.bench.registry import registered
from esper.bench.row import Comparison
from esper.bench.timing.opened import agree, opened
from esper.bench.work.growth.steered import on_seed, own_optimizer
from esper.kasmina.config import KasminaConfig
from esper.kasmina.pruning.messages import bits_of
from esper.leyline import contracts as pb
from tests import checkpoint_kit, far_kit, seed_kit
from tests.checkpoint_kit import Training
from tests.seed_kit import Op

batch = seed_kit.batch
Waited = Callable[[], Mapping[str, int]]
"""What was waited for since it was last asked."""


def nowhere() -> Mapping[str, int]:
    return {}


class Placed(Training):
    """A rank in training on the device."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        def placed(step: int, size: int = 64) -> tuple[Tensor, Tensor]:
            inputs, targets = batch(step, size)
            return inputs.to(device), targets.to(device)

        checkpoint_kit.batch = seed_kit.batch = placed  # type: ignore[attr-defined]
        super().__init__(folder, seed_kit.new_host().to(device))


def life(device: torch.device, waited: Waited = nowhere) -> dict[str, Any]:
    """Through all stages, a rollback, and on in another process' place; a second seed comes and stays."""
    with tempfile.TemporaryDirectory() as folder:
        first, again = (Placed(Path(folder), device) for _ in range(2))
        first.live_on()
        waited()
        first.train(20)
        steps = waited()
        first.checkpoints.save(first.step)
        place = again.checkpoints.resume()
        assert place is not None
        again.step = place.step
        again.train(3)
    return {"stages": again.stages(), "tensors": again.everything(), "waits": steps}


def pruned(device: torch.device, waited: Waited = nowhere) -> dict[str, Any]:
    """Channels taken away, trained without, and given back."""
    with tempfile.TemporaryDirectory() as folder:
        run = Placed(Path(folder), device)
        run.train(2)
        kept = torch.tensor([True, False, True, True, False, True])
        mask = pb.PruningMask(
            parameter="body.weight",
            mask_type=pb.PruningMaskType.PRUNING_MASK_CHANNEL,
            kept=bits_of(kept),
            num_channels=len(kept),
        )
        command = pb.StructuralPruningResponse(request_id="r", validation_passed=True, pruning_masks=[mask])
        taken = run.pruning.apply(command, run.step)
        run.train(3)
        lifted = run.pruning.apply(pb.StructuralPruningResponse(request_id="u", rollback_required=True), run.step)
        run.train(1)
        statuses = [pb.ReceiptStatus.Name(each.status) for each in (taken, lifted)]
        return {"stages": statuses, "tensors": run.everything(), "waits": {}}


def scaled(device: torch.device, waited: Waited = nowhere) -> dict[str, Any]:
    """A session in half precision, with a GradScaler that clips, and a seed from germination to its cull."""
    torch.manual_seed(0)
    host = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 3)).to(device)
    optimizer = torch.optim.AdamW(host.parameters(), lr=1e-3, foreach=True)
    inputs, targets = (each.to(device) for each in batch(-1, 256))
    scaler = torch.amp.GradScaler(device.type, init_scale=256.0, growth_interval=8)
    run = esper.attach(
        host,
        optimizer=optimizer,
        sites=["0", "2"],
        required=False,
        scaler=scaler,
        holdout=([(inputs, targets)], seed_kit.loss_of),
        settings=KasminaConfig(window=4, latency_budget_ms=1e5),
        environment={"ESPER_RUN": ""},
    )

    def train(num_steps: int) -> None:
        for _ in range(num_steps):
            inputs, targets = (each.to(device) for each in batch(run.step_number))
            with run.step() as step:
                with torch.autocast(device.type, dtype=torch.bfloat16):
                    loss = nn.functional.cross_entropy(host(inputs).float(), targets)
                torch.autograd.backward(scaler.scale(loss))
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(host.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                step.loss(loss)
        run.epoch_end()

    receipts = []
    train(2)
    for operation, num_steps in ((Op.SEED_OP_GERMINATE, 0), (Op.SEED_OP_START_TRAINING, 12), (Op.SEED_OP_CULL, 2)):
        receipts.append(on_seed(run, operation, "s0", site="0", blueprint_id="mlp"))
        if operation == Op.SEED_OP_GERMINATE:
            receipts.append(own_optimizer(run, "s0", 1e-2))
        train(num_steps)
    run.close()
    statuses = [pb.ReceiptStatus.Name(each.status) for each in receipts]
    return {"stages": statuses, "tensors": dict(host.state_dict()), "waits": {}}


def rows(device: torch.device, waited: Waited = nowhere) -> dict[str, Any]:
    """Arms of the rows that can work on a device: each called once on it, to the same as the others of its row.

    RuntimeError where a call computed nothing there.
    """
    os.environ[DEVICE] = device.type
    for row in placed_rows():
        with opened(row, row.arms) as ready:
            agree(row, ready)
            for name, arm in ready.items():
                arm.prepare()
                before = far_kit.waits.num_computed
                arm.call()
                if device.type == far_kit.NAME and far_kit.waits.num_computed == before:
                    raise RuntimeError(f"{row.name}: {name} has computed nothing on {device}")
    return {"stages": [row.name for row in placed_rows()], "tensors": {}, "waits": {}}


def placed_rows() -> list[Comparison]:
    every = registered([Path(__file__).resolve().parent.parent / "bench" / "kasmina.py"]).values()
    return [row for row in every if isinstance(row, Comparison) and row.is_placed]


TRIALS: Mapping[str, Callable[[torch.device, Waited], dict[str, Any]]] = {
    "life": life,
    "pruned": pruned,
    "scaled": scaled,
    "rows": rows,
}


def main(name: str, file: str) -> None:
    torch.set_num_threads(1)
    device = far_kit.register()

    def waited() -> Mapping[str, int]:
        places, far_kit.waits.places = dict(far_kit.waits.places), type(far_kit.waits.places)()
        return places

    found = TRIALS[name](device, waited)
    strays = [key for key, each in found["tensors"].items() if each.device != device and not key.endswith("/step/0")]
    near = {key: each.cpu() for key, each in found["tensors"].items()}
    torch.save({**found, "tensors": near, "strays": strays}, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
