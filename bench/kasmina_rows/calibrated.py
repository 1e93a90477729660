"""How often gate G4's lower bound holds on data that nothing has seen: many small problems, each with its own seed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import torch
from torch import Tensor, nn

from esper.bench.effort import Effort, Mode
from esper.bench.figures import Figure, Ratio
from esper.kasmina.config import KasminaConfig
from esper.kasmina.executor import Executor
from esper.kasmina.gates.ablation import Holdout, gains
from esper.kasmina.gates.evidence import Sources
from esper.kasmina.moves import Outcome
from esper.leyline import contracts as pb

# Short windows, so that a seed lives for some 200 steps; bounds and looks are those of every run.
SETTINGS = KasminaConfig(window=20, blend_steps=10, latency_budget_ms=1e4, loss_variance_max=100.0)
ROW = "calibration, "
# Seeds, of which six of seven are fossilised: a hundred fossils are the least that says something.
NUM: Mapping[Mode, int] = {"quick": 130, "gate": 200, "full": 600}
HOLDS = 0.93  # asked of the share of bounds that hold
HELD_OUT, FRESH, BATCH, MOST_STEPS = 512, 32_768, 32, 400
APPLIED = pb.ReceiptStatus.RECEIPT_APPLIED
Op = pb.SeedOperation


@dataclass(frozen=True, slots=True)
class Look:
    """One look of G4: what it said, and the mean gain on fresh examples."""

    gain: pb.PairedGain
    fresh: float
    fossilized: bool

    def low(self, error: float) -> float:
        """The lower bound at another error than the gate's share: the reach is proportional to the quantile."""
        normal = NormalDist()
        gates = SETTINGS.error_rate / SETTINGS.max_looks
        reach = (self.gain.mean - self.gain.low) / normal.inv_cdf(1.0 - gates)
        return self.gain.mean - reach * normal.inv_cdf(1.0 - error)


class Problem:
    """Noisy labels of a random teacher, and a host that is too small for it. A function of `number` alone."""

    def __init__(self, number: int) -> None:
        self.generator = torch.Generator().manual_seed(number)
        self.teacher = [torch.randn(8, 24, generator=self.generator), torch.randn(24, 3, generator=self.generator)]
        self.noise = 0.5 + 2.5 * float(torch.rand((), generator=self.generator))
        self.seed_lr = 10.0 ** (-5.0 + 3.0 * float(torch.rand((), generator=self.generator)))
        torch.manual_seed(number)
        self.model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))

    def examples(self, num: int) -> tuple[Tensor, Tensor]:
        inputs = torch.randn(num, 8, generator=self.generator)
        scores = torch.relu(inputs @ self.teacher[0]) @ self.teacher[1] / 5.0
        return inputs, (scores + self.noise * torch.randn(scores.shape, generator=self.generator)).argmax(1)


def losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


class Life:
    """One seed, from germination to whatever its policy and its gates make of it."""

    def __init__(self, number: int) -> None:
        self.problem = Problem(number)
        self.fresh = Holdout([self.problem.examples(FRESH)], losses)
        held_out = Holdout([self.problem.examples(HELD_OUT)], losses)
        self.model = self.problem.model
        self.executor = Executor(
            self.model, ["0"], run_id=f"calibration-{number}", settings=SETTINGS, sources=Sources(holdout=held_out)
        )
        self.host = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.seed: torch.optim.Optimizer | None = None
        self.looks: list[Look] = []

    def run(self) -> list[Look]:
        for step in range(1, MOST_STEPS + 1):
            self._train(step)
            if step == 40:
                self._germinate(step)
            for request in self.executor.requests():
                outcome = self._carry_out(request, step + 1)
                if outcome.culled or outcome.stage == pb.SeedLifecycleStage.SEED_STAGE_FOSSILIZED:
                    return self.looks
        return self.looks

    def _germinate(self, step: int) -> None:
        command = pb.SeedCommand(seed_id="s", operation=Op.SEED_OP_GERMINATE, site="0", blueprint_id="mlp")
        command.parameters["auto"] = 1.0
        outcome = self.executor.apply(command, step + 1, 0)
        if outcome.status != APPLIED:
            raise RuntimeError(f"no seed germinated: {outcome.detail}")
        parameters = [p for _, p in self.executor.seeds["s"].trainable()]
        self.seed = torch.optim.AdamW(parameters, lr=self.problem.seed_lr)

    def _carry_out(self, request: pb.SeedRequest, step: int) -> Outcome:
        if request.operation != Op.SEED_OP_FOSSILIZE:
            return self.executor.request(request, step, 0)
        seed = self.executor.seeds["s"]
        slot = self.executor._slots["0"]
        fresh = float(gains(self.model, slot, self.fresh, float(seed.alpha)).mean())  # before a fossil is folded in
        outcome = self.executor.request(request, step, 0)
        assert seed.paired_gain is not None  # it was just looked at
        self.looks.append(Look(seed.paired_gain, fresh, outcome.status == APPLIED))
        return outcome

    def _train(self, step: int) -> None:
        self.executor.begin_step(step, 0)
        inputs, targets = self.problem.examples(BATCH)
        loss = losses(self.model(inputs), targets).mean()
        torch.autograd.backward(loss)
        self.executor.observe([p.grad for p in self.model.parameters() if p.grad is not None], step)
        if self.seed is not None:
            self.seed.step()
            self.seed.zero_grad()
        self.host.step()
        self.host.zero_grad()
        self.executor.note_loss(loss)


def measure(effort: Effort) -> Iterator[Figure]:
    """Raises RuntimeError where no seed was fossilised."""
    num = NUM[effort.mode]
    lives = [Life(effort.seed * 1_000_000 + number).run() for number in range(num)]
    looks = [look for life in lives for look in life]
    fossils = [look for look in looks if look.fossilized]
    if not fossils:
        raise RuntimeError(f"of {num} seeds none was fossilised")
    worthless = [look for look in fossils if look.fresh <= SETTINGS.min_gain]
    counts = {
        "germinated": (len(lives), num),
        "reached G4": (sum(bool(life) for life in lives), num),
        "fossilised": (len(fossils), num),
        "fossilised, worth nothing on fresh data": (len(worthless), len(fossils)),
    }
    for arm, (count, of) in counts.items():
        yield Figure(ROW + "seeds", arm, "count", count, "seeds", of)
    for arm, chosen in (("fossils", fossils), ("all looks", looks)):
        for error in (SETTINGS.error_rate / SETTINGS.max_looks, SETTINGS.error_rate):
            yield coverage(arm, chosen, error)
    gains_of = {
        "as the gate saw it": [each.gain.mean for each in fossils],
        "on fresh data": [each.fresh for each in fossils],
    }
    for arm, found in gains_of.items():
        yield Figure(ROW + "gain", f"fossils, {arm}", "mean", fmean(found), "nats", len(found), samples=found)


def coverage(arm: str, looks: Sequence[Look], error: float) -> Figure:
    """Share of looks whose lower bound at this error is at most the fresh mean, with Wilson's 95 % interval."""
    held = sum(look.low(error) <= look.fresh for look in looks)
    share = held / len(looks)
    vs = Ratio("a bound that always holds", share, *wilson(held, len(looks)))
    name = f"{arm}, at {1 - error:.1%}"
    return Figure(ROW + "lower bound holds", name, "rate", share, "share", len(looks), vs=vs, target=HOLDS, higher=True)


def wilson(held: int, num: int) -> tuple[float, float]:
    """Wilson's score interval of a share (JASA 22, 1927)."""
    z = 1.959963984540054
    share, squared = held / num, z * z / num
    middle, reach = share + squared / 2, z * math.sqrt(share * (1 - share) / num + squared / (4 * num))
    return (middle - reach) / (1 + squared), (middle + reach) / (1 + squared)
