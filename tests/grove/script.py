"""A training script of several ranks: the same code with a session around its steps and without."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from esper.session import Session
from tests.garden import marks
from tests.garden.hosts import KINDS, each_loss, first_tensor
from tests.garden.loops import OPTIMIZERS, RAISED, SCHEDULERS
from tests.grove.plan import AS_ONE, OF_ONE, Plan
from tests.grove.sharded import take_over

T = TypeVar("T")
RAISING = OF_ONE[:3]


class Dropped(Exception):
    """Ranks agreed to leave this step out: something was raised on one of them."""


class Faulty(torch.autograd.Function):
    """The identity, whose backward raises."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError("by the dice")


class Script:
    """A host, what shares its gradients, and its optimizer. `step` is one pass of its loop, on one of its ranks."""

    def __init__(self, plan: Plan, rank: int, host: nn.Module | None = None) -> None:
        self.plan, self.rank, self.kind, self.manner = plan, rank, KINDS[plan.kind], plan.manner
        self.host = self.kind.host() if host is None else host
        if plan.shards is not None:
            plan.shards.split(self.host, self.kind.sites)
        self.model: nn.Module = self.host
        trained = [each for each in self.host.parameters() if each.requires_grad]
        self.optimizer, self._trained = OPTIMIZERS[self.manner.optimizer](trained), trained
        self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3) if self.manner.scales else None
        made = SCHEDULERS.get(plan.more.scheduler)
        self.scheduler = None if made is None else made(self.optimizer)
        self.called: Callable[[Tensor], Any] = self.model
        self.outputs: list[Tensor] = []
        self.lesson: Callable[[Tensor, Tensor], Tensor] | None = None  # what is distilled, beside a session
        self.averaged: Callable[[], object] = lambda: None  # is told when gradients are the same on both ranks

    def wrap(self, group: dist.ProcessGroup | None = None, **options: bool) -> None:
        """Have DDP share the gradients, if it is to."""
        if self.plan.sharing.is_ddp:
            given: dict[str, Any] = {**self.plan.sharing.options, **options}
            self.model = DistributedDataParallel(self.host, process_group=group, **given)
        self.called = torch.compile(self.model, backend="eager") if self.plan.more.compiles else self.model

    def twin(self, group: dist.ProcessGroup) -> Script:
        """The same script at the same point, without whatever hangs on this one; its ranks meet in `group`."""
        if self.plan.shards is not None:
            return self._sharded_twin()
        memo: dict[int, Any] = {}
        other = Script(self.plan, self.rank, copy.deepcopy(self.host, memo))
        for parameter in self.host.parameters():
            memo[id(parameter)].grad = None if parameter.grad is None else parameter.grad.clone()
        other.optimizer.param_groups[:] = [
            {**group, "params": [memo[id(each)] for each in group["params"]]} for group in self.optimizer.param_groups
        ]
        for mine, state in self.optimizer.state.items():
            other.optimizer.state[memo[id(mine)]] = copy.deepcopy(state)
        if self.scaler is not None and other.scaler is not None:
            other.scaler.load_state_dict(copy.deepcopy(self.scaler.state_dict()))
        if self.scheduler is not None and other.scheduler is not None:
            other.scheduler.load_state_dict(copy.deepcopy(self.scheduler.state_dict()))
        if isinstance(self.model, DistributedDataParallel):  # which hands out no buffers of later fossils
            handed = {id(each) for each in self.model.modules_buffers}
            own = [name for name, each in self.host.named_buffers() if id(each) not in handed]
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(other.host, own)  # type: ignore[no-untyped-call]
        other.wrap(group, init_sync=False)
        if isinstance(self.model, DistributedDataParallel) and isinstance(other.model, DistributedDataParallel):
            other.model.require_forward_param_sync = self.model.require_forward_param_sync  # of the next forward
        with torch.no_grad():
            for mine, its in zip(self.host.buffers(), other.host.buffers(), strict=True):
                its.copy_(mine)  # wrapping gave it those of rank 0
        return other

    def _sharded_twin(self) -> Script:
        """No split host can be copied."""
        drawn = marks.randomness()
        other = Script(self.plan, self.rank)
        marks.put_randomness(drawn)
        take_over(self, other)
        if self.scheduler is not None and other.scheduler is not None:
            other.scheduler.load_state_dict(copy.deepcopy(self.scheduler.state_dict()))
        return other

    def own_state(self) -> dict[str, Any]:
        parts = {"scaler": self.scaler, "scheduler": self.scheduler}
        return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items() if part is not None}

    def step(self, number: int, run: Session | None = None, began: Callable[[], object] = lambda: None) -> str:
        """One pass with the batches of this number; what was raised in it. `began` is called in the step."""
        self.outputs, has_begun = [], False
        try:
            with nullcontext() if run is None else run.step() as step:
                began()
                has_begun = True
                loss = self._pass(number)
                if step is not None and loss is not None:
                    step.loss(loss)
        except Dropped as error:
            if not has_begun:
                raise
            self.optimizer.zero_grad()
            return str(error)
        self._evaluate(number)
        if self.plan.more.copies and self.rank == 0 and number % 3 == 0:
            with torch.random.fork_rng(devices=[]):  # ranks with one seed go on drawing the same
                output = copy.deepcopy(self.host)(self.kind.batch(-number))
                torch.autograd.backward(each_loss(output).mean())
        return ""

    # -- one pass ----------------------------------------------------------------------------------------------------

    def _pass(self, number: int) -> Tensor | None:
        event, whom = self.manner.event(number)
        everyone = tuple(range(self.plan.more.world_size))
        whom = everyone if self.plan.sharing.way == AS_ONE or len(whom) > 1 else whom
        if event == "skips":
            return None
        total, num = torch.zeros(()), self.manner.num_micro
        extra = int(self.plan.sharing.uneven and self.rank == 1)
        for micro in range(-extra, num):
            last = micro == num - 1
            # A forward that DDP expects a backward of has it reduce the next one, also below no_sync().
            befalls = micro == (0 if self.plan.sharing.no_sync else num - 1) and event in OF_ONE
            with self._shared(last):
                total = total + self._micro(10 * number + micro + 5, event if befalls else "", whom)
        if self.plan.sharing.way.startswith("plain"):
            self._average(self._trained if self.plan.sharing.way == "plain own" else self.parameters())
        self.averaged()
        if event != "forgets":
            self._update()
        self.optimizer.zero_grad(set_to_none=self.manner.sets_to_none)
        return total

    def _shared(self, last: bool) -> AbstractContextManager[object]:
        apart = isinstance(self.model, DistributedDataParallel) and self.plan.sharing.no_sync and not last
        return self.model.no_sync() if apart and isinstance(self.model, DistributedDataParallel) else nullcontext()

    def _micro(self, number: int, event: str, whom: tuple[int, ...]) -> Tensor:
        """Forward and backward of one batch. What is raised on one rank is dropped on both, once it is known."""
        mine = self._befalling(event, whom) if self.rank in whom else ""
        loss = self._tried(event, lambda: self._loss(self._batch(number, mine), mine))
        if event == "not finite" and self.scaler is None and self.agreed(not bool(loss.detach().isfinite())):
            return torch.zeros(())
        scaled = (loss if self.scaler is None else self.scaler.scale(loss)) / self.manner.num_micro
        self._tried(event, lambda: torch.autograd.backward(scaled))
        return loss.detach()

    def _tried(self, event: str, call: Callable[[], T]) -> T:
        """Dropped where it raises on any rank, in a step in which something may."""
        if event not in RAISING:
            return call()
        said, found = "", list[T]()
        try:
            found.append(call())
        except RAISED as error:
            said = f"{type(error).__name__}: {error}"[:100]
        if self.agreed(not found):
            raise Dropped(said or "raised on the other rank")
        return found[0]

    def _befalling(self, event: str, whom: tuple[int, ...]) -> str:
        """What DDP outlives in its place, or does not wait for ever in."""
        if not isinstance(self.model, DistributedDataParallel):
            return event
        if not self.model.require_backward_grad_sync:  # its next forward would or would not broadcast buffers
            return "backward raises" if event == "raises" else event
        cut_off = event == "backward raises late" or (
            event == "backward raises" and len(whom) < self.plan.more.world_size
        )
        return "raises" if cut_off else event

    def agreed(self, mine: bool) -> bool:
        """Whether it is so on any rank."""
        flag = torch.tensor(float(mine))
        dist.all_reduce(flag)
        return bool(flag)

    def _batch(self, number: int, event: str) -> Tensor:
        which = 2 * number + (0 if self.plan.sharing.way == AS_ONE else self.rank)
        batch = self.kind.batch(which)
        if event == "raises":
            return batch[..., :-1].float() * float("inf") if self.kind.num_ids else batch[..., :-1]
        if event == "not finite" and not self.kind.num_ids:
            return batch.clone().index_fill_(0, torch.tensor([1]), float("nan"))
        if event == "backward raises late" and not self.kind.num_ids:
            return Faulty.apply(batch.requires_grad_())  # type: ignore[no-any-return, no-untyped-call]
        return batch

    def _loss(self, batch: Tensor, event: str) -> Tensor:
        with self._precision():
            output = first_tensor(self.called(batch))
        if event == "backward raises" or (event == "backward raises late" and self.kind.num_ids):
            output = Faulty.apply(output)  # type: ignore[no-untyped-call]
        self.outputs.append(output.detach().clone())
        loss = each_loss(output).mean()
        return loss if self.lesson is None else loss + self.lesson(output, batch).to(loss.dtype)

    @contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.manner.autocast):
            yield

    def parameters(self) -> list[Tensor]:
        return [each for group in self.optimizer.param_groups for each in group["params"]]

    def _average(self, parameters: Sequence[Tensor]) -> None:
        """As scripts do it that know no DDP."""
        for each in parameters:
            gradient = torch.zeros_like(each) if each.grad is None else each.grad
            dist.all_reduce(gradient)
            each.grad = gradient / self.plan.more.world_size

    def _update(self) -> None:
        if self.scaler is None:
            self._clip()
            self.optimizer.step()
        elif any(each.grad is not None for each in self.parameters()):
            if self.manner.clips:
                self.scaler.unscale_(self.optimizer)
                self._clip()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()

    def _clip(self) -> None:
        if self.manner.clips:
            torch.nn.utils.clip_grad_norm_(self.parameters(), 0.5)

    def _evaluate(self, number: int) -> None:
        if not self.manner.evaluates or (self.manner.evaluates == "one" and self.rank):
            return
        model: Callable[[Tensor], Any] = self.host if self.manner.evaluates == "one" else self.called
        self.model.eval()
        with torch.no_grad(), self._by_modules():
            self.outputs.append(first_tensor(model(self.kind.batch(-number))).clone())
        self.model.train()

    @contextmanager
    def _by_modules(self) -> Iterator[None]:
        """Compiled, torch's fast path of encoders rounds otherwise; a twin has hooks, as a copy has them, and none."""
        before = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(before and not self.plan.more.compiles)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)
