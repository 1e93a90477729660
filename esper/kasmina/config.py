"""Settings of the executor, with the reason for each bound beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from esper.errors import SettingError


@dataclass(frozen=True, slots=True)
class KasminaConfig:
    """Every threshold of the executor. Raises SettingError for a value that cannot be meant.

    Names are those of the seeds' KasminaConfig where it has one. What FIXED holds is accepted at that value only: a
    protection cannot be switched off here, and what the wire settles is not this process's to change. So is what
    ELSEWHERE names, which is set there, so that no value given here goes unnoticed.
    """

    # Gates; `window` is W of the design, in optimizer steps.
    window: int = 50  # steps that gates look at, and that a policy waits before it tries a failed one again
    rho: float = 0.1  # TRAINING: the seed fits a step of rho * norm(h) against the gradient
    rho_max: float = 0.5  # abs(delta) may be this share of abs(h); ten times as much is gated away
    gradient_ratio_min: float = 1e-3  # G1: norm of the seed's gradient over that of the host's, mean of a window
    gradient_ratio_max: float = 10.0  # the same from above
    loss_variance_max: float = 2.0  # relative: variance over squared mean; small batches near the end are near 1
    recompiles_max: int = 2  # of the whole process within one window; a third is a storm
    latency_budget_ms: float = 20.0  # of one forward of the seed, best of five
    scale_drift_max: float = 0.5  # G3: the largest abs(norm(y) / norm(h) - 1) of the blended value y
    min_examples: int = 256  # G4: held-out examples that it wants, as the mean over ranks
    min_gain: float = 0.0  # in the loss's unit, per example
    max_looks: int = 3  # G4: tries at most while the gain's interval holds min_gain; then the seed is culled
    error_rate: float = 0.05  # one-sided, shared equally among the looks
    embargo_epochs: int = 100  # epochs from a cull until a reset may free the site
    seed_memory_bytes: int = 256 * 2**20  # parameters of one seed
    seeds_memory_bytes: int = 4 * 2**30  # of all seeds, gradients and moments too; at 85 % `memory.filling` is told
    # Blending.
    blend_steps: int = 30  # length of a blending in steps, where its command names none
    alpha_hysteresis: float = 0.02  # alpha is in another phase only so far beyond its boundary, 0.3 or 0.7
    alpha_feedback: bool = True  # alpha waits, or goes back, while the loss is worse than before blending
    alpha_feedback_sigmas: float = 3.0  # worse by more than this many standard errors of the two means
    gradient_clip_adaptive: bool = True  # of a blended seed's gradient, by alpha
    # Automatic advance of seeds that ask for it.
    auto_attempts: int = 10  # at one gate, a window apart; then the seed is culled
    # Looking after seeds.
    seeds_per_site: int = 1  # one after the other, each seeing the output of those before it
    walk_every: int = 50  # steps between two close looks at whether a seed reaches beyond its own
    read_every: int = 8  # steps between two reads of the counters on the device
    circuit_breaker_threshold: int = 3
    """Culled is a seed that has reached beyond its own in so many steps, whose gradients are not finite in as many in a
    row, or of which more forwards than that were gated away."""
    # Kernels and pools.
    cache_size_mb: int = 512  # MiB of seeds that were built ahead, and wait for their germination
    kernel_cache_size: int = 1000  # how many of these may wait
    checkpoint_pruning_enabled: bool = True  # False: pruning is refused until a request activates it
    torch_compile_backend: str = ""  # that seeds are compiled with, each structure once; empty: they run in eager mode
    # Set elsewhere: see ELSEWHERE.
    max_concurrent_kernels: int = 8
    blueprint_cache_size: int = 500
    telemetry_buffer_size: int = 10_000
    performance_mode: bool = True
    torch_compile_enabled: bool = True
    fullgraph: bool = False
    dynamic_shapes: bool = True
    kd_enabled: bool = False
    kd_temperature: float = 4.0
    kd_weight: float = 0.3
    teacher_checkpoint_path: str | None = None
    checkpoint_segments: int = 4
    enable_amp: bool = True
    amp_dtype: str = "float16"
    # Settled by the wire, or not to be switched off: see FIXED.
    gradient_checkpointing: bool = True
    use_reentrant: bool = False
    gradient_monitor_enabled: bool = True
    backward_hook_monitoring: bool = True
    emergency_checkpoint: bool = True
    hmac_authentication: bool = True
    nonce_expiry_seconds: int = 300
    timestamp_tolerance_seconds: int = 60
    two_optimizer_pattern: bool = True
    message_based_coordination: bool = True
    three_tier_aggregation: bool = True
    region_based_metrics: bool = True
    aggregation_ratio: int = 32
    epoch_barrier_enabled: bool = True
    barrier_frequency: int = 100
    byzantine_detection: bool = True
    consensus_timeout_ms: int = 5000
    leyline_contracts_enabled: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, getattr(self, field.name), field.default)
        if self.gradient_ratio_min >= self.gradient_ratio_max:
            expected = f"less than gradient_ratio_max, {self.gradient_ratio_max:g}"
            raise SettingError("gradient_ratio_min", self.gradient_ratio_min, expected)


FIXED: Final[Mapping[str, bool | int]] = {
    "gradient_monitor_enabled": True,
    "backward_hook_monitoring": True,
    "emergency_checkpoint": True,
    "hmac_authentication": True,
    "nonce_expiry_seconds": 300,  # of the replay windows
    "timestamp_tolerance_seconds": 60,
    "two_optimizer_pattern": True,
    "message_based_coordination": True,
    "three_tier_aggregation": True,
    "region_based_metrics": True,
    "aggregation_ratio": 32,
    "epoch_barrier_enabled": True,
    "barrier_frequency": 100,
    "byzantine_detection": True,
    "consensus_timeout_ms": 5000,
    "leyline_contracts_enabled": True,
    "gradient_checkpointing": True,  # where gradients flow through a teacher
    "use_reentrant": False,  # the other kind breaks under torch.compile
}

_COMPILED = "the host is compiled as you call torch.compile; seeds with torch_compile_backend"
_TEACHER = "a teacher is registered by command, and held as its TeacherSettings say"
ELSEWHERE: Final[Mapping[str, str]] = {
    "max_concurrent_kernels": "as many seeds run as there are places at the sites, see seeds_per_site",
    "blueprint_cache_size": "every blueprint is kept",
    "telemetry_buffer_size": "rows wait in esper.tolaria.rows.rows.Rows(capacity=...)",
    "performance_mode": "there is one mode",
    "torch_compile_enabled": _COMPILED,
    "fullgraph": _COMPILED,
    "dynamic_shapes": _COMPILED,
    "kd_enabled": "a loss is distilled where esper.kasmina.kd.StaticKDLoss is used",
    "kd_temperature": "esper.kasmina.kd.StaticKDLoss(temperature=...)",
    "kd_weight": "esper.kasmina.kd.StaticKDLoss(kd_weight=...)",
    "teacher_checkpoint_path": _TEACHER,
    "checkpoint_segments": _TEACHER,
    "enable_amp": _TEACHER,
    "amp_dtype": _TEACHER,
}

SHARES = frozenset({"rho", "error_rate", "alpha_hysteresis"})  # in (0, 1)
ANY_SIGN = frozenset({"min_gain"})
FROM_ZERO = frozenset(
    {"blend_steps", "embargo_epochs", "recompiles_max", "loss_variance_max", "scale_drift_max", "gradient_ratio_min"}
)


def _check(name: str, value: object, default: object) -> None:
    if name in FIXED and (value != FIXED[name] or type(value) is not type(FIXED[name])):
        raise SettingError(name, value, f"{FIXED[name]!r}: it is fixed")
    if name in ELSEWHERE and (value != default or type(value) is not type(default)):
        raise SettingError(name, value, f"{default!r} here: {ELSEWHERE[name]}")
    if isinstance(default, bool) and not isinstance(value, bool):
        raise SettingError(name, value, "True or False")
    if isinstance(default, int | float) and not isinstance(default, bool):
        _check_number(name, value, whole=isinstance(default, int))


def _check_number(name: str, value: object, *, whole: bool) -> None:
    kind = "a whole number" if whole else "a number"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not math.isfinite(value):
        raise SettingError(name, value, kind)
    if name in SHARES and not 0 < value < 1:
        raise SettingError(name, value, f"{kind} above 0 and below 1")
    lowest_fits = name in ANY_SIGN or value > 0 or (value == 0 and name in FROM_ZERO)
    if not lowest_fits:
        raise SettingError(name, value, f"{kind} {'of at least' if name in FROM_ZERO else 'above'} 0")
