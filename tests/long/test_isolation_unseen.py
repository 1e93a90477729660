"""What the user's own tools see of a model with seeds beside it: what they would see without us."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from esper.kasmina.executor import Executor
from esper.leyline import contracts as pb
from tests.seed_kit import APPLIED, Bench, Host, Op, batch, equal, loss_of, new_host


@dataclass
class Loop:
    """A training loop that clips, decays, averages, scales and schedules. What it saw is kept."""

    host: Host = field(default_factory=new_host)
    norms: list[Tensor] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    step: int = 0

    def __post_init__(self) -> None:
        parameters = list(self.host.parameters())
        self.optimizer = torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 40)
        self.average = AveragedModel(self.host, multi_avg_fn=get_ema_multi_avg_fn(0.9))  # type: ignore[no-untyped-call]
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=4)

    def turn(self, beside: Executor | None = None) -> None:
        self.step += 1
        if beside is not None:
            beside.begin_step(self.step, 0)
        x, targets = batch(self.step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(self.host(x).float(), targets).mean()
        if self.step % 7 == 0:
            loss = loss * torch.inf  # this step is skipped, and the scale halved
        torch.autograd.backward(self.scaler.scale(loss))
        self.scaler.unscale_(self.optimizer)
        self.norms.append(nn.utils.clip_grad_norm_(self.host.parameters(), 0.5))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scales.append(self.scaler.get_scale())
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.average.update_parameters(self.host)


def grown(loop: Loop, stage: str) -> Executor:
    """Beside a seed at each site."""
    beside = Executor(loop.host, ["body", "head"], run_id="r")
    loop.turn(beside)
    operations = [Op.SEED_OP_GERMINATE, *([Op.SEED_OP_START_TRAINING] if stage == "TRAINING" else [])]
    for site, blueprint in (("body", "mlp"), ("head", "lora")):
        for operation in operations:
            command = pb.SeedCommand(seed_id=site, operation=operation, site=site, blueprint_id=blueprint)
            assert beside.apply(command, loop.step + 1, 0).status == APPLIED
    return beside


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # the scaler may skip the first step
@pytest.mark.parametrize("stage", ["GERMINATED", "TRAINING"])
def test_clipping_decay_averages_scales_and_state_are_those_of_the_host_alone(stage: str) -> None:
    alone, loop = Loop(), Loop()
    beside = grown(loop, stage)

    for _ in range(15):
        loop.turn(beside)
    for _ in range(16):
        alone.turn()

    assert [str(float(norm)) for norm in loop.norms] == [str(float(norm)) for norm in alone.norms]
    assert loop.scales == alone.scales and len(set(loop.scales)) == 2  # it grew, and was halved
    assert equal(loop.host.state_dict(), alone.host.state_dict())
    assert equal(loop.average.state_dict(), alone.average.state_dict())
    assert equal(moments(loop), moments(alone))
    assert loop.scheduler.get_last_lr() == alone.scheduler.get_last_lr()
    learned = [seed.gradients() for seed in beside.seeds.values()]
    assert all(learned) if stage == "TRAINING" else not any(learned)


def moments(loop: Loop) -> dict[str, Tensor]:
    state = loop.optimizer.state_dict()["state"]
    return {f"{index}.{name}": value for index, values in state.items() for name, value in values.items()}


@pytest.mark.parametrize("stage", ["BLENDING", "PROBATIONARY"])
def test_while_a_seed_blends_the_users_tools_still_hold_the_hosts_tensors_alone(stage: str) -> None:
    bare, bench = new_host(), Bench()
    bench.raise_seed(stage)

    average = AveragedModel(bench.host)
    x, _ = batch(99)

    assert [name for name, _ in bench.host.named_parameters()] == [name for name, _ in bare.named_parameters()]
    assert bench.host.state_dict().keys() == bare.state_dict().keys()
    assert average.state_dict().keys() == AveragedModel(bare).state_dict().keys()
    assert [len(group["params"]) for group in bench.optimizer.param_groups] == [4]
    bare.load_state_dict(bench.host.state_dict())
    assert torch.equal(average(x), bare(x)) and not torch.equal(bench.host(x), bare(x))


def test_clipping_while_a_seed_blends_takes_the_norm_of_the_hosts_gradients_alone() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    x, targets = batch(99)
    torch.autograd.backward(loss_of(bench.host(x), targets).mean())
    squares = sum(float(p.grad.double().square().sum()) for p in bench.host.parameters() if p.grad is not None)
    own = [gradient.clone() for gradient in bench.executor.seeds["s0"].gradients()]

    norm = nn.utils.clip_grad_norm_(bench.host.parameters(), 1e-3)

    assert float(norm) == pytest.approx(squares**0.5, rel=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(own, bench.executor.seeds["s0"].gradients(), strict=True)) and own
