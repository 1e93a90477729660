"""A model that is called with several inputs: its held-out examples are, too."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import Op
from tests.session_kit import on_seed, order, own_optimizer, unsteered
from tests.site_kit import OPEN, squares

TOKENS = torch.arange(32).reshape(8, 4) * 7 % 20
INPUTS = {"tokens": TOKENS, "mask": (TOKENS % 3 > 0).float()}
NONE = torch.empty(0)


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.words, self.site, self.head = nn.Embedding(20, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, *, tokens: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.head(torch.tanh(self.site(self.words(tokens))).mul(mask[..., None]).mean(1))
        return y


def by_name(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    outputs: Tensor = model(**inputs)
    return outputs


def train(run: Session, host: nn.Module, num_steps: int) -> None:
    for _ in range(num_steps):
        with run.step() as step:
            loss = squares(by_name(host, INPUTS)).mean()
            torch.autograd.backward(loss)
            run.optimizer.step()
            run.optimizer.zero_grad()
            step.loss(loss)


def test_its_seeds_are_measured_and_become_part_of_it() -> None:
    host = Masked()
    holdout = [(INPUTS, NONE)], lambda outputs, _: squares(outputs), by_name
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.05), "site", "head", holdout=holdout, settings=OPEN)
    train(run, host, 1)
    for seed, site in {"kept": "site", "lost": "head"}.items():
        germinate = on_seed(Op.SEED_OP_GERMINATE, seed, site=site, blueprint_id="lora")
        order(run, germinate, own_optimizer(seed, 0.02), on_seed(Op.SEED_OP_START_TRAINING, seed))
        run._must_wait()
    train(run, host, 12)
    order(run, on_seed(Op.SEED_OP_CULL, "lost"))
    run._must_wait()

    for operation in (Op.SEED_OP_START_GRAFTING, Op.SEED_OP_STABILIZE, Op.SEED_OP_EVALUATE, Op.SEED_OP_FOSSILIZE):
        order(run, on_seed(operation, "kept"))
        train(run, host, 12)

    stages = {state.seed_id: state.stage for state in run.executor.states()}
    assert stages["kept"] == pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED
    assert stages["lost"] != pb.SeedLifecycleStage.SEED_STAGE_TRAINING
    gain = run.executor.seeds["kept"].paired_gain
    assert gain is not None and gain.examples == len(TOKENS)
    run.close()
