"""What a state comes to, by name, so that two of them can be held against one another bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from esper.kernels.split import own_part, reshard
from esper.session import Session
from tests.garden.loops import Loop

Marks = dict[str, Any]


def randomness() -> Marks:
    """Of the global generators."""
    return {"torch": torch.get_rng_state(), "python": random.getstate(), "numpy": _numpy_state()}


def put_randomness(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state()
    assert isinstance(state, tuple)
    return state[0], state[1].tobytes(), *state[2:]


def of_model(loop: Loop) -> Marks:
    """Parameters and buffers, gradients apart."""
    reshard(loop.host)
    named = [*loop.host.named_parameters(), *loop.host.named_buffers()]
    return {name: own_part(each).detach().clone() for name, each in named}


def of_gradients(loop: Loop) -> Marks:
    return {
        f"grad of {name}": None if each.grad is None else own_part(each.grad).to_dense().clone()
        for name, each in loop.host.named_parameters()
    }


def of_optimizer(loop: Loop) -> Marks:
    """What it remembers, by place of the parameter."""
    places = {each: at for at, each in enumerate(placed(loop.optimizer))}
    found: Marks = {"optimizer of": len(places)}
    for parameter, state in loop.optimizer.state.items():
        assert parameter in places, "the optimizer remembers a parameter that it does not step"
        for name, value in state.items():
            found[f"optimizer {places[parameter]} {name}"] = _copied(value)
    return found


def of_groups(loop: Loop) -> Marks:
    """Hyperparameters, and what else the script holds."""
    groups = enumerate(loop.optimizer.param_groups)
    found: Marks = {
        f"group {at} {name}": _copied(value)
        for at, group in groups
        for name, value in group.items()
        if name != "params"
    }
    return found | {f"own {name}": repr(state) for name, state in loop.own_state().items()}


def of_seeds(run: Session) -> Marks:
    """Stages, weights, alphas and what their optimizers remember."""
    found: Marks = {}
    for name, seed in run.executor.seeds.items():
        found[f"{name} is"] = (int(seed.stage), seed.paused, seed.blueprint_id, seed.site)
        if seed.module is None:
            continue
        found[f"{name} alpha"] = float(seed.alpha)
        tensors = [*seed.module.named_parameters(), *seed.module.named_buffers()]
        found |= {f"{name} {each}": tensor.detach().clone() for each, tensor in tensors}
    for name, optimizer in run.optimizers._seeds.items():
        states = enumerate(
            optimizer.torch.state[each] for each in optimizer.parameters if each in optimizer.torch.state
        )
        found |= {
            f"{name} optimizer {at} {key}": _copied(value) for at, state in states for key, value in state.items()
        }
        found[f"{name} optimizer is"] = (optimizer.kind.name, optimizer.num_taken)
    return found


def of_host(loop: Loop) -> Marks:
    """What no order may change but those to the host itself."""
    return of_model(loop) | of_optimizer(loop) | randomness()


def of_all(loop: Loop, run: Session | None = None) -> Marks:
    """Everything that a step can change."""
    outputs = {f"output {at}": each for at, each in enumerate(loop.outputs)}
    found = of_model(loop) | of_gradients(loop) | of_optimizer(loop) | of_groups(loop) | randomness() | outputs
    return found if run is None else found | of_seeds(run)


def differing(a: Marks, b: Marks) -> list[str]:
    """Names of what is not the same in both."""
    return sorted(name for name in a.keys() | b.keys() if name not in a or name not in b or not _same(a[name], b[name]))


def finite(marks: Iterable[Any]) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in marks if isinstance(each, Tensor))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape and a.layout == b.layout
        return alike and bool(torch.isclose(a.to_dense(), b.to_dense(), rtol=0.0, atol=0.0, equal_nan=True).all())
    return bool(a == b)


def placed(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """Its parameters, one group behind the other."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def _copied(value: Any) -> Any:
    return own_part(value).detach().to_dense().clone() if isinstance(value, Tensor) else repr(value)
