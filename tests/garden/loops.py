"""Training scripts of many kinds: the same code with a session around its steps and without."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from torch.utils.checkpoint import checkpoint

from esper.kernels.distillation import StaticKDLoss
from esper.session import Session
from tests.garden.governed import Rules
from tests.garden.habits import Habits, UsersOfGradient
from tests.garden.hosts import Kind, each_loss, first_tensor


def eight_bits(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """torchao's; its step would compile itself, for longer than a life lasts."""
    from torchao.optim import AdamW8bit

    torch.compiler.set_stance("force_eager")
    made: torch.optim.Optimizer = AdamW8bit(parameters, lr=0.01)
    return made


OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=0.01),
    "sgd foreach": partial(torch.optim.SGD, lr=0.05, momentum=0.9, foreach=True),
    "adamw": partial(torch.optim.AdamW, lr=0.01),
    "adamw foreach": partial(torch.optim.AdamW, lr=0.01, foreach=True),
    "adamw fused": partial(torch.optim.AdamW, lr=0.01, fused=True),
    "adam": partial(torch.optim.Adam, lr=0.01, amsgrad=True),
    "rmsprop": partial(torch.optim.RMSprop, lr=0.005, momentum=0.5, centered=True),
    "lbfgs": partial(torch.optim.LBFGS, lr=0.05, max_iter=2),
}
SCHEDULERS: dict[str, Callable[[torch.optim.Optimizer], lr_scheduler.LRScheduler]] = {
    "step": partial(lr_scheduler.StepLR, step_size=3, gamma=0.9),
    "cosine": partial(lr_scheduler.CosineAnnealingLR, T_max=20),
}
EVERYWHERE = tuple(OPTIMIZERS)
"""Those that are drawn from: what else is installed makes no other life of a seed."""
EIGHT_BITS = "adamw 8 bit"
if importlib.util.find_spec("torchao") is not None:
    OPTIMIZERS[EIGHT_BITS] = eight_bits
EVENTS = ("raises", "skips", "forgets", "not finite", "empty", "single", "two losses")
"""What may befall a step: its forward raises; nothing is run; the optimizer does not step; a batch is not finite, has
no example or one; a loss is made of two forwards."""


@dataclass(frozen=True)
class Manner:
    """How a script trains."""

    optimizer: str
    num_micro: int
    clips: bool
    autocast: bool
    scales: bool
    scheduler: str
    checkpoints: str  # "": none; reentrant or not
    closure: bool
    sets_to_none: bool
    evaluates: str  # "": not; no_grad or inference_mode
    eventful: float  # share of steps that something befalls

    @classmethod
    def draw(cls, dice: Random) -> Manner:
        optimizer = dice.choice(EVERYWHERE)
        closure = optimizer == "lbfgs" or dice.random() < 0.15
        return cls(
            optimizer,
            dice.choice([1, 1, 2, 3]),
            dice.random() < 0.3,
            dice.random() < 0.25,
            not closure and dice.random() < 0.2,
            dice.choice(["", "", *SCHEDULERS]),
            dice.choice(["", "", "", "reentrant", "not reentrant"]),
            closure,
            dice.random() < 0.7,
            dice.choice(["", "no_grad", "inference_mode"]),
            dice.choice([0.0, 0.1, 0.3]),
        )

    def event(self, number: int) -> str:
        """What befalls the step with this batch; most often nothing."""
        dice = Random(number)
        return dice.choice(EVENTS) if dice.random() < self.eventful else ""


NO_HABITS, PLAIN = Habits(), Rules()
RAISED = RuntimeError, ValueError, AssertionError
"""What a host's forward raises over a batch that does not fit."""


class Loop:
    """A host, its optimizer and what else a script holds. `step` is one pass of its loop."""

    def __init__(self, kind: Kind, manner: Manner, habits: Habits = NO_HABITS, host: nn.Module | None = None) -> None:
        self.kind, self.manner, self.habits = kind, manner, habits
        self.host = kind.host() if host is None else host
        trained = [each for each in self.host.parameters() if each.requires_grad or host is not None]
        self.second = torch.optim.SGD([trained.pop()], lr=0.05, momentum=0.9) if habits.second else None
        self.teacher = kind.host().requires_grad_(False).eval() if habits.distils else None
        self.num_casts = 0  # how often parameters were given another precision, or group
        self.optimizer = OPTIMIZERS[manner.optimizer](trained)
        made = SCHEDULERS.get(manner.scheduler)
        self.scheduler = None if made is None else made(self.optimizer)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) if manner.scales else None
        self.outputs: list[Tensor] = []
        self.lesson: Callable[[Tensor, Tensor], Tensor] | None = None  # what is distilled, beside a session
        self.rules = PLAIN  # of a twin: what is commanded of the optimizer beside it

    def twin(self) -> Loop:
        """The same script at the same point, without whatever hangs on this one."""
        memo: dict[int, Any] = {}
        host = copy.deepcopy(self.host, memo)
        other = Loop(self.kind, self.manner, self.habits, host)
        for parameter in self.host.parameters():
            alike = memo[id(parameter)]
            alike.grad = None if parameter.grad is None else parameter.grad.clone()
            for hook in (parameter._backward_hooks or {}).values():
                if isinstance(hook, UsersOfGradient):
                    alike.register_hook(hook)
        _take_over(other.optimizer, self.optimizer, memo)
        if self.second is not None and other.second is not None:
            _take_over(other.second, self.second, memo)
        other.take_over(self.own_state())
        return other

    def own_state(self) -> dict[str, Any]:
        """What a script saves beside the model and its optimizer."""
        parts = {"scheduler": self.scheduler, "scaler": self.scaler, "second": self.second}
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if part is not None}

    def take_over(self, state: dict[str, Any]) -> None:
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        if self.second is not None:
            self.second.load_state_dict(state["second"])

    def step(self, number: int, run: Session | None = None, began: Callable[[], object] = lambda: None) -> str:
        """One pass with the batch of this number; the name of what was raised in it. `began` is called in the step."""
        self.outputs, has_begun = [], False
        try:
            with nullcontext() if run is None else run.step() as step:
                began()
                has_begun = True
                loss = self._pass(number)
                if step is not None and loss is not None:
                    step.loss(loss)
        except RAISED as error:
            if not has_begun:
                raise
            self.optimizer.zero_grad()
            return f"{type(error).__name__}: {error}"
        if self.manner.evaluates:
            self._evaluate(number)
        return ""

    def _pass(self, number: int) -> Tensor | None:
        event = self.manner.event(number)
        self.habits.meddle(self, number)
        if event == "skips":
            return None
        if self.manner.closure:
            closure: Any = partial(self._closure, number, event)
            return torch.as_tensor(self._descend(closure)).detach()
        total = self._backward(number, event)
        self._update(event)
        return total

    def _closure(self, number: int, event: str) -> Tensor:
        self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
        return self._backward(number, event)

    def _backward(self, number: int, event: str) -> Tensor:
        total = torch.zeros(())
        for micro in range(self.manner.num_micro):
            last = micro == self.manner.num_micro - 1
            loss = self._loss(self._batch(10 * number + micro, event if last else ""))
            if last and event == "two losses":
                loss = loss + self._loss(self._batch(10 * number + 9, ""))
            scaled = loss if self.scaler is None else self.scaler.scale(loss)
            if not bool(loss.detach().isfinite()):
                continue  # as scripts do that drop a bad batch
            if self.habits.backwards:
                torch.autograd.backward(scaled / self.manner.num_micro, retain_graph=True)
            torch.autograd.backward(scaled / self.manner.num_micro)
            total = total + loss.detach()
        return total

    def _batch(self, number: int, event: str) -> Tensor:
        if event == "raises":
            return self.batch(number)[..., :-1].float() * float("inf") if self.kind.num_ids else self._cut(number)
        if event == "not finite" and not self.kind.num_ids:
            return self.batch(number).clone().index_fill_(0, torch.tensor([1]), float("nan"))
        return self.batch(number, {"empty": 0, "single": 1}.get(event, 4))

    def batch(self, number: int, size: int = 4) -> Tensor:
        """In the host's own precision."""
        made = self.kind.batch(number, size)
        return made.to(next(self.host.parameters()).dtype) if made.is_floating_point() else made

    def first(self, output: Any) -> Tensor:
        return first_tensor(output)

    def _cut(self, number: int) -> Tensor:
        return self.batch(number)[..., :-1]

    def _loss(self, batch: Tensor) -> Tensor:
        plain = not (self.manner.checkpoints or self.kind.accumulates)
        punished = self.habits.penalty and plain and batch.is_floating_point()
        if punished:
            batch.requires_grad_()
        with self._precision():
            output = self._forward(batch)
        self.outputs.append(output.detach().clone())
        loss = each_loss(output).mean()
        if self.teacher is not None and output.numel():
            given = batch.float() if batch.is_floating_point() else batch
            loss = loss + StaticKDLoss()(output, first_tensor(self.teacher(given.detach())).to(output.dtype))
        if self.lesson is not None:
            loss = loss + self.lesson(output, batch).to(loss.dtype)
        if punished and loss.requires_grad:
            (slope,) = torch.autograd.grad(loss, batch, create_graph=True)
            loss = loss + 0.1 * slope.square().sum()
        return loss

    def _forward(self, batch: Tensor) -> Tensor:
        if not self.manner.checkpoints or not batch.is_floating_point():
            return first_tensor(self.host(batch))
        reentrant = self.manner.checkpoints == "reentrant"
        output = checkpoint(
            lambda given: first_tensor(self.host(given)), batch.requires_grad_(), use_reentrant=reentrant
        )
        assert isinstance(output, Tensor)
        return output

    @contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.manner.autocast):
            yield

    def _update(self, event: str) -> None:
        if event != "forgets":
            if self.scaler is not None:
                if any(each.grad is not None for each in self._parameters()):
                    self._step_scaled(self.scaler)
            else:
                if self.manner.clips:
                    self._clip()
                self._descend()
            if self.scheduler is not None:
                self.scheduler.step()
        self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
        if self.second is not None:
            self.second.step()
            self.second.zero_grad()

    def _step_scaled(self, scaler: torch.amp.GradScaler) -> None:
        if self.manner.clips:
            scaler.unscale_(self.optimizer)
            self._clip()
        with self.rules.over(self.optimizer):
            scaler.step(self.optimizer)
        scaler.update()

    def _descend(self, closure: Any = None) -> Any:
        if not self.rules.granted:
            return None if closure is None else closure()
        if self.rules.clip:
            torch.nn.utils.clip_grad_norm_(self._parameters(), self.rules.clip)
        with self.rules.over(self.optimizer):
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)

    def _parameters(self) -> list[Tensor]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    def _clip(self) -> None:
        torch.nn.utils.clip_grad_norm_(self._parameters(), 0.5)

    def _evaluate(self, number: int) -> None:
        self.host.eval()
        with torch.no_grad() if self.manner.evaluates == "no_grad" else torch.inference_mode():
            self.outputs.append(first_tensor(self.host(self.batch(-number))).clone())
        self.host.train()


def _take_over(mine: torch.optim.Optimizer, other: torch.optim.Optimizer, memo: dict[int, Any]) -> None:
    """Groups and moments, of the parameters' copies."""
    groups = [
        {name: each.clone() if isinstance(each, Tensor) else each for name, each in group.items()}
        | {"params": [memo[id(each)] for each in group["params"]]}
        for group in other.param_groups
    ]
    mine.param_groups[:] = groups
    if isinstance(mine, torch.optim.LBFGS):
        mine._params = groups[0]["params"]
    for parameter, state in other.state.items():
        mine.state[memo[id(parameter)]] = copy.deepcopy(state)
