"""Training scripts of many kinds: the same code with a session around its steps and without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.checkpoint import checkpoint

from esper.kernels.distillation import StaticKDLoss
from esper.session import Session
from tests.garden.besides import SEVERAL, Reader, Several
from tests.garden.further import SCHEDULERS as FURTHER
from tests.garden.governed import Rules
from tests.garden.grouped import grouped
from tests.garden.habits import Habits, UsersOfGradient
from tests.garden.hosts import Kind, each_loss, first_tensor
from tests.garden.manners import (
    EVERYWHERE as EVERYWHERE,
    OPTIMIZERS as OPTIMIZERS,
    SCHEDULERS as SCHEDULERS,
    Manner as Manner,
)
from tests.garden.newest import LENGTHS, Late
from tests.garden.rare import OPTIMIZERS as RARE, WITH_MOMENTUM

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
        self.optimizer = {**OPTIMIZERS, **RARE, **WITH_MOMENTUM}[manner.optimizer](grouped(self.host, trained, manner))
        kinds: dict[str, Callable[[torch.optim.Optimizer], LRScheduler | Several]]
        kinds = {**SCHEDULERS, **FURTHER, SEVERAL: Several}
        made = kinds.get(manner.scheduler)
        self.scheduler = None if made is None else made(self.optimizer)
        self.reader, self.kept = Reader(), dict[str, Tensor]()  # weights of an earlier step
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) if manner.scales else None
        self.outputs: list[Tensor] = []
        self.lesson: Callable[[Tensor, Tensor], Tensor] | None = None  # what is distilled, beside a session
        self.rules = PLAIN  # of a twin: what is commanded of the optimizer beside it

    def twin(self) -> Loop:
        """The same script at the same point, without whatever hangs on this one."""
        memo: dict[int, Any] = {}
        host = copy.deepcopy(self.host, memo)
        _lay_out(self.host, memo)
        other = Loop(self.kind, self.manner, self.habits, host)
        for parameter in self.host.parameters():
            alike = memo[id(parameter)]
            alike.grad = None if parameter.grad is None else parameter.grad.clone()
            for hook in (parameter._backward_hooks or {}).values():
                if isinstance(hook, UsersOfGradient):
                    alike.requires_grad_(True).register_hook(hook)  # the script may have frozen it since
            alike.requires_grad_(parameter.requires_grad)
        _take_over(other.optimizer, self.optimizer, memo)
        if self.second is not None and other.second is not None:
            _take_over(other.second, self.second, memo)
        other.take_over(self.own_state())
        other.kept = {name: each.clone() for name, each in self.kept.items()}
        return other

    def own_state(self) -> dict[str, Any]:
        """What a script saves beside the model and its optimizer."""
        parts = {"scheduler": self.scheduler, "scaler": self.scaler, "second": self.second}
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if part is not None}

    def take_over(self, state: dict[str, Any]) -> None:
        if isinstance(self.scheduler, LambdaLR):  # torch leaves functions out of its state
            missing = len(self.optimizer.param_groups) - len(self.scheduler.lr_lambdas)
            self.scheduler.lr_lambdas.extend(self.scheduler.lr_lambdas[:1] * missing)
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        if self.second is not None:
            self.second.load_state_dict(state["second"])

    @property
    def can_be_told(self) -> bool:
        """Whether a twin can do as commanded: not with what only a scaler or closure knows, nor clip what is sparse."""
        sparse = any(isinstance(each, nn.Embedding) and each.sparse for each in self.host.modules())
        return not (sparse or self.manner.closure or self.scaler is not None)

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
        if self.manner.strays:
            self._stray(number)
        return ""

    def _stray(self, number: int) -> None:
        """Another model's loss goes back through the host, as a generator's does through its critic."""
        with suppress(*RAISED):
            output = first_tensor(self.host(self.batch(-10 * number - 1)))
            if output.requires_grad and bool(output.detach().isfinite().all()):
                torch.autograd.backward(-output.float().square().mean())
        self.host.zero_grad()

    def _pass(self, number: int) -> Tensor | None:
        event = self.manner.event(number)
        self.reader.num_read += 1
        if self.manner.rests:
            self.host.train(not self.manner.is_resting(number))
        self.habits.meddle(self, number)
        if event == "skips":
            return None
        if self.manner.closure:
            closure: Any = partial(self._closure, number, event)
            return torch.as_tensor(self._descend(closure)).detach()
        for again in range(self.manner.num_updates):
            if self.manner.zeroes_first:
                self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
            total = self._backward(number, event, 4 * again)
            if event == "raises late":
                raise Late(event)
            if number % self.manner.num_passes == 0:
                self._update(event)
        if event == "raises last":
            raise Late(event)
        return total

    def _closure(self, number: int, event: str) -> Tensor:
        self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
        return self._backward(number, event)

    def _backward(self, number: int, event: str, first: int = 0) -> Tensor:
        total = torch.zeros(())
        for micro in range(self.manner.num_micro):
            last = micro == self.manner.num_micro - 1
            loss = self._loss(self._batch(10 * number + first + micro, event if last else ""))
            if last and event == "two losses":
                loss = loss + self._loss(self._batch(10 * number + 9, ""))
            scaled = loss if self.scaler is None else self.scaler.scale(loss)
            if not bool(loss.detach().isfinite()):
                continue  # as scripts do that drop a bad batch
            if self.manner.looks:
                self._look(number)
            if self.habits.backwards:
                torch.autograd.backward(scaled / self.manner.num_micro, retain_graph=True)
            if self.manner.is_overflowing(number):
                scaled = scaled * torch.inf
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
        """In the host's own precision, that of what is real in it."""
        made = self.kind.batch(number, size)
        made = made.to(_real(self.host)) if made.is_floating_point() else made
        made = made[:, : LENGTHS[number % len(LENGTHS)]] if self.manner.lengths else made
        return made.to(memory_format=torch.channels_last) if self.manner.last and made.ndim == 4 else made

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
            given = batch.to(_real(self.teacher)) if batch.is_floating_point() else batch
            loss = loss + StaticKDLoss()(output, first_tensor(self.teacher(given.detach())).to(output.dtype))
        if self.lesson is not None:
            loss = loss + self.lesson(output, batch).to(loss.dtype)
        if punished and loss.requires_grad:
            (slope,) = torch.autograd.grad(loss, batch, create_graph=True, allow_unused=True)
            loss = loss if slope is None else loss + 0.1 * slope.square().sum()
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
        if not self.manner.zeroes_first:
            self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
        if self.second is not None:
            if not self.manner.overflows or all(bool(each.isfinite().all()) for each in _gradients(self.second)):
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

    def _look(self, number: int) -> None:
        """Evaluate in the midst of a step."""
        modes = [(module, module.training) for module in self.host.modules()]
        self.host.eval()
        with torch.no_grad() if self.manner.looks == "no_grad" else torch.inference_mode():
            self.outputs.append(first_tensor(self.host(self.batch(-number - 1))).clone())
        for module, training in modes:
            module.training = training


def _real(module: nn.Module) -> torch.dtype:
    return next(each.dtype for each in module.parameters() if each.is_floating_point())


def _gradients(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]


def _lay_out(host: nn.Module, memo: dict[int, Any]) -> None:
    """What lies in one vector lies so in the copy, too: the last bit of a product hangs on the alignment."""
    copies = dict[int, Tensor]()
    for parameter in host.parameters():
        vector = parameter.untyped_storage()
        if vector.nbytes() == parameter.nbytes:
            continue
        if vector.data_ptr() not in copies:
            copies[vector.data_ptr()] = torch.empty(0, dtype=parameter.dtype).set_(vector).clone()
        place = parameter.shape, parameter.stride(), parameter.storage_offset()
        memo[id(parameter)].data = copies[vector.data_ptr()].as_strided(*place)


def _take_over(mine: torch.optim.Optimizer, other: torch.optim.Optimizer, memo: dict[int, Any]) -> None:
    """Groups and moments, of the parameters' copies."""
    groups = [
        {name: each.clone() if isinstance(each, Tensor) else copy.copy(each) for name, each in group.items()}
        | {"params": [memo[id(each)] for each in group["params"]]}
        for group in other.param_groups
    ]
    mine.param_groups[:] = groups
    mine.defaults = {**other.defaults}  # of a group that the script makes; a load may have added to them
    if isinstance(mine, torch.optim.LBFGS):
        mine._params = groups[0]["params"]
    mine.state.clear()  # an Adagrad has some once it is built, here of a parameter that another optimizer may step
    for parameter, state in other.state.items():
        mine.state[memo[id(parameter)]] = copy.deepcopy(state)
