"""The optimizers that a seed may have, told apart by the hyperparameters that they are created with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.overrides import Group

Values = Mapping[str, float]
MOST_STEPS = 10**9


@dataclass(frozen=True, slots=True)
class Bound:
    """What a hyperparameter may be: in [low, high), or in [low, high] where `closed`."""

    low: float = 0.0
    high: float = math.inf
    closed: bool = False
    whole: bool = False

    def admits(self, value: float) -> bool:
        below = value <= self.high if self.closed else value < self.high
        return self.low <= value and below and (not self.whole or value == int(value))

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high == math.inf:
            return f"{kind} of at least {self.low:g}"
        return f"{kind} in [{self.low:g}, {self.high:g}{']' if self.closed else ')'}"


BOUNDS: Mapping[str, Bound] = {
    "lr": Bound(),
    "weight_decay": Bound(),
    "eps": Bound(),
    "beta1": Bound(high=1.0),
    "beta2": Bound(high=1.0),
    "momentum": Bound(high=1.0, closed=True),
    "dampening": Bound(high=1.0, closed=True),
    "nesterov": Bound(high=1.0, closed=True, whole=True),
    "fused": Bound(high=1.0, closed=True, whole=True),
    "warmup_steps": Bound(high=MOST_STEPS, closed=True, whole=True),
}
EPS_IN_HALF = 1e-3
"""Where second moments are float16, which rounds 1e-8 to 0, and them where gradients are below 8e-3: with this a step
is then 8 times the rate at most."""
STATE_BITS = "state_bits"  # chooses the kind, and is no value of a step


@dataclass(frozen=True, slots=True)
class Kind:
    """One of torch's optimizers: what it may be given, and how that is written in its parameter group."""

    name: str
    defaults: Values
    group: Callable[[Values], Group]
    make: Callable[[Iterable[torch.Tensor], Group], torch.optim.Optimizer]
    eager: bool = False  # its step would compile itself at first use
    wide: bool = False  # it computes in float32 whatever its parameters are

    def complete(self, optimizer_id: str, given: Values, *, in_half: bool = False) -> dict[str, float]:
        """Defaults overlaid with `given`; RefusedError for a name or a value that does not fit.

        `in_half`: some parameters are float16.
        """
        names = [name for name in given if name != STATE_BITS]
        require_known(optimizer_id, [name for name in names if name not in self.defaults], self.defaults)
        narrow = in_half and not self.wide
        require_bounds(optimizer_id, given, in_half=narrow)
        values = {**self.defaults, **{name: float(given[name]) for name in names}}
        if narrow and "eps" in values and "eps" not in given:
            values["eps"] = EPS_IN_HALF
        if values.get("nesterov") and (not values["momentum"] or values["dampening"]):
            detail = f"optimizer {optimizer_id!r}: nesterov needs a momentum above 0 and a dampening of 0"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        return values


def kind_of(optimizer_id: str, given: Values) -> Kind:
    """SGD where momentum, dampening or nesterov is given, AdamW8bit for state_bits = 8, otherwise AdamW."""
    bits = given.get(STATE_BITS, 32)
    if bits not in (8, 32):
        detail = f"{STATE_BITS} of optimizer {optimizer_id!r} is {bits:g}; expected 8 or 32"
        raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
    if bits == 8:
        return ADAMW_8BIT
    return SGD if any(name in given for name in ("momentum", "dampening", "nesterov")) else ADAMW


def require_known(optimizer_id: str, unknown: list[str], known: Mapping[str, float]) -> None:
    if unknown:
        detail = f"optimizer {optimizer_id!r} has no {', '.join(map(repr, unknown))}; known: {', '.join(sorted(known))}"
        raise RefusedError(pb.ReasonCode.REASON_UNKNOWN_PARAMETER, detail)


def require_bounds(optimizer_id: str, values: Values, *, in_half: bool = False) -> None:
    """RefusedError for the first value out of range; names without a bound may be any finite number.

    `in_half`: some are added to what is float16.
    """
    for name, value in values.items():
        bound = BOUNDS.get(name, Bound(low=-math.inf))
        if not (math.isfinite(value) and bound.admits(value)):
            detail = f"{name} of optimizer {optimizer_id!r} is {value:g}; expected {bound}"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)
        if in_half and name == "eps" and not torch.tensor(value, dtype=torch.float16, device="cpu"):
            expected = "which float16 rounds to 0; expected at least 6e-08"
            detail = f"eps of optimizer {optimizer_id!r} is {value:g}, {expected}"
            raise RefusedError(pb.ReasonCode.REASON_OUT_OF_RANGE, detail)


def _adam_group(values: Values) -> Group:
    betas = (values["beta1"], values["beta2"])
    group: Group = {"lr": values["lr"], "betas": betas, "eps": values["eps"], "weight_decay": values["weight_decay"]}
    return group | _in_batches(values)


def _sgd_group(values: Values) -> Group:
    names = ("lr", "momentum", "dampening", "weight_decay")
    return {**{name: values[name] for name in names}, "nesterov": bool(values["nesterov"])} | _in_batches(values)


def _in_batches(values: Values) -> Group:
    """Many tensors at once: by torch's kernels for lists, or in one fused kernel, which rounds otherwise."""
    fused = bool(values["fused"])
    return {"foreach": not fused, "fused": fused}


def _adamw(parameters: Iterable[torch.Tensor], group: Group) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, **group)  # type: ignore[arg-type]


def _sgd(parameters: Iterable[torch.Tensor], group: Group) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, **group)  # type: ignore[arg-type]


def _adamw_8bit(parameters: Iterable[torch.Tensor], group: Group) -> torch.optim.Optimizer:
    try:
        from torchao.optim import AdamW8bit  # an optional package, which takes 2 s to import
    except ImportError as error:
        detail = f"8-bit optimizer state needs torchao, which is missing ({error}); install esper[torchao]"
        raise RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, detail) from error
    optimizer: torch.optim.Optimizer = AdamW8bit(parameters, **group)
    return optimizer


def _8_bit_group(values: Values) -> Group:
    betas = (values["beta1"], values["beta2"])
    rate = torch.tensor(values["lr"], dtype=torch.float32, device="cpu")
    return {"lr": rate, "betas": betas, "eps": values["eps"], "weight_decay": values["weight_decay"]}


_8_BIT = {"lr": 1e-3, "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "warmup_steps": 0.0}
_ADAM = _8_BIT | {"fused": 0.0}
_MOMENTUM = {"lr": 1e-3, "weight_decay": 0.0, "momentum": 0.0, "dampening": 0.0, "nesterov": 0.0}

ADAMW = Kind("AdamW", _ADAM, _adam_group, _adamw)
SGD = Kind("SGD", _MOMENTUM | {"warmup_steps": 0.0, "fused": 0.0}, _sgd_group, _sgd)
ADAMW_8BIT = Kind("AdamW8bit", _8_BIT, _8_bit_group, _adamw_8bit, eager=True, wide=True)
