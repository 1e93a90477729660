"""The six gates: pure rules on evidence. An unmeasured value (None) fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

from esper.kasmina.config import KasminaConfig


@dataclass(frozen=True, slots=True)
class SanityEvidence:
    """G0."""

    seen: float | None  # the site has carried a batch
    fault: float | None  # the blueprint's code raised
    digest_gap: float | None  # against the mean over ranks
    non_finite: float | None  # parameters
    seed_bytes: float | None
    shape_ok: float | None
    identity: float | None  # largest abs(delta), must be 0
    draws: float | None  # global generators moved
    stray_leaves: float | None
    hooks: float | None  # that building it left on the host


@dataclass(frozen=True, slots=True)
class GradientEvidence:
    """G1."""

    steps: float | None
    fit_first: float | None
    fit_last: float | None
    probe_change: float | None  # L(h + delta) - L(h)
    gradient_ratio: float | None
    size_ratio: float | None
    violations: float | None


@dataclass(frozen=True, slots=True)
class StabilityEvidence:
    """G2."""

    alpha_gap: float | None
    alpha_held: float | None  # because the loss is worse than before blending
    loss_variance: float | None
    recompiles: float | None  # of the whole process, within the last window
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class InterfaceEvidence:
    """G3."""

    mismatches: float | None  # batches whose delta had another shape, device or kind of dtype than h
    batches: float | None
    batches_shadowed: float | None
    scale_drift: float | None


@dataclass(frozen=True, slots=True)
class ImpactEvidence:
    """G4."""

    examples: float | None
    mean: float | None
    low: float | None
    high: float | None
    look: int
    fault: float | None  # share of ranks where its code has raised


@dataclass(frozen=True, slots=True)
class ResetEvidence:
    """G5."""

    seeds: float | None  # that the slot still holds
    optimizers: float | None  # with state for this seed
    hooks: float | None  # that the seed's code left at the site
    bytes_held: float | None  # of the seed's tensors that something still holds
    differing: float | None  # outputs that differ from the bare host's


UNREACHED = (
    "no gradient has come to the seed since it trains: does the loss read the first tensor that its site gives, "
    "and does the optimizer that attach() was given step?"
)
UNTOLD = "it takes the losses of a window of steps since blending began, as step.loss(loss) tells them"

Evidence = SanityEvidence | GradientEvidence | StabilityEvidence | InterfaceEvidence | ImpactEvidence | ResetEvidence


class Rule(NamedTuple):
    name: str
    holds: Callable[[float], bool]
    expected: str


@dataclass(frozen=True, slots=True)
class GateResult:
    """A verdict with its reasons. `hopeless`: a failure that no waiting can mend, so that the seed is culled."""

    passed: bool
    detail: str
    evidence: dict[str, float]
    non_finite: bool = False
    hopeless: bool = False
    score: float = 0.0  # share of the criteria that held


def judge(evidence: Evidence, config: KasminaConfig) -> GateResult:
    """The gate that this evidence belongs to, judged."""
    match evidence:
        case SanityEvidence():
            return _judge(evidence, _sanity(config.seed_memory_bytes))
        case GradientEvidence():
            first = math.nan if evidence.fit_first is None else evidence.fit_first
            ratios = config.gradient_ratio_min, config.gradient_ratio_max
            result = _judge(evidence, _gradient(first, config.window, ratios, config.rho_max))
            return replace(result, detail=f"{result.detail}; {UNREACHED}") if evidence.steps == 0 else result
        case StabilityEvidence():
            bounds = config.loss_variance_max, config.recompiles_max, config.latency_budget_ms
            result = _judge(evidence, _stability(*bounds))
            return replace(result, detail=f"{result.detail}; {UNTOLD}") if evidence.loss_variance is None else result
        case InterfaceEvidence():
            return _judge(evidence, _interface(config.scale_drift_max))
        case ImpactEvidence():
            return _impact(evidence, config)
        case ResetEvidence():
            return _judge(evidence, RESET)


def _zero(name: str) -> Rule:
    return Rule(name, lambda value: value == 0, "0")


def _at_most(name: str, bound: float) -> Rule:
    return Rule(name, lambda value: value <= bound, f"at most {bound:g}")


def _at_least(name: str, bound: float) -> Rule:
    return Rule(name, lambda value: value >= bound, f"at least {bound:g}")


# A gate's rules are made once for each of its bounds: making them anew takes as long as asking them.


@lru_cache(maxsize=64)
def _sanity(most_bytes: int) -> tuple[Rule, ...]:
    names = ("fault", "digest_gap", "non_finite", "identity", "draws", "stray_leaves", "hooks")
    return (
        _at_least("seen", 1),
        *(_zero(name) for name in names),
        _at_most("seed_bytes", most_bytes),
        _at_least("shape_ok", 1),
    )


@lru_cache(maxsize=64)
def _gradient(first: float, window: int, ratios: tuple[float, float], rho_max: float) -> tuple[Rule, ...]:
    lowest, highest = ratios
    return (
        _at_least("steps", window),
        Rule("fit_first", math.isfinite, "a finite number"),
        Rule("fit_last", lambda value: value < first, f"below the first window's {first:.4g}"),
        Rule("probe_change", lambda value: value < 0, "below 0"),
        Rule("gradient_ratio", lambda value: lowest <= value <= highest, f"in [{lowest:g}, {highest:g}]"),
        _at_most("size_ratio", rho_max),
        _zero("violations"),
    )


@lru_cache(maxsize=64)
def _stability(most_variance: float, most_recompiles: float, most_ms: float) -> tuple[Rule, ...]:
    return (
        _zero("alpha_gap"),
        _zero("alpha_held"),
        _at_most("loss_variance", most_variance),
        _at_most("recompiles", most_recompiles),
        _at_most("latency_ms", most_ms),
    )


@lru_cache(maxsize=64)
def _interface(most_drift: float) -> tuple[Rule, ...]:
    return (
        _zero("mismatches"),
        _at_least("batches", 1),
        _at_least("batches_shadowed", 1),
        _at_most("scale_drift", most_drift),
    )


RESET = tuple(_zero(name) for name in ("seeds", "optimizers", "hooks", "bytes_held", "differing"))


def _impact(evidence: ImpactEvidence, config: KasminaConfig) -> GateResult:
    above = Rule("low", lambda value: value > config.min_gain, f"above {config.min_gain:g}")
    finite = Rule("mean", math.isfinite, "a finite number")
    result = _judge(evidence, [_at_least("examples", config.min_examples), finite, above, _zero("fault")])
    low, high = evidence.low, evidence.high
    enough = evidence.examples is not None and evidence.examples >= config.min_examples
    open_ended = enough and low is not None and high is not None and low <= config.min_gain <= high
    hold = result.passed or (open_ended and evidence.look < config.max_looks)
    return replace(result, hopeless=not hold)


def _judge(evidence: Evidence, rules: Sequence[Rule]) -> GateResult:
    names: tuple[str, ...] = evidence.__match_args__
    values: dict[str, float | None] = dict(zip(names, attrgetter(*names)(evidence), strict=True))
    failures = []
    for name, holds, expected in rules:
        value = values[name]
        if value is None:
            failures.append(f"{name} is unmeasured")
        elif not holds(value):
            failures.append(f"{name} is {value:.4g}, expected {expected}")
    measured = {name: float(value) for name, value in values.items() if value is not None}
    non_finite = not all(map(math.isfinite, measured.values()))
    score = 1.0 - len(failures) / len(rules)
    return GateResult(not failures, "; ".join(failures), measured, non_finite, score=score)
