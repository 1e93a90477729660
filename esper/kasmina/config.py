"""Settings of the executor, with the reason for each bound beside it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KasminaConfig:
    """Thresholds of gates and breakers. `window` is W of the design, in optimizer steps."""

    window: int = 50
    rho: float = 0.1  # TRAINING: the seed fits a step of rho * norm(h) against the gradient
    rho_max: float = 0.5  # abs(delta) may be this share of abs(h); ten times as much is gated away
    gradient_ratio_min: float = 1e-3
    gradient_ratio_max: float = 10.0
    loss_variance_max: float = 2.0  # relative: variance over squared mean; small batches near the end are near 1
    latency_budget_ms: float = 20.0  # of one forward of the seed, best of five
    scale_drift_max: float = 0.5
    min_examples: int = 256
    min_gain: float = 0.0  # in the loss's unit, per example
    max_looks: int = 3
    error_rate: float = 0.05  # one-sided, shared equally among the looks
    blend_steps: int = 30
    embargo_epochs: int = 100
    seed_memory_bytes: int = 256 * 2**20
    walk_every: int = 50
    read_every: int = 8  # steps between two reads of the counters on the device
    circuit_breaker_threshold: int = 3
    breaker_window_steps: int = 1000  # failures older than this are forgotten
    breaker_open_steps: int = 1000
