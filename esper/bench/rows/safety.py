"""What safety costs: snapshots, rollbacks, emergency checkpoints, circuit breakers, optimizer commands."""

from __future__ import annotations

from esper.bench.lazily import lazily
from esper.bench.row import Comparison, Goal, Row

ROLLBACK = Comparison(
    "emergency-rollback",
    "safety",
    arms=(
        lazily("bytes copied back", "ranks:copied_back"),
        lazily("snapshot", "ranks:snapped"),
        lazily("rollback", "ranks:rolled_back"),
    ),
    shape="1.3 M parameters, AdamW's moments, four seeds",
    goals=(Goal("rollback", "p50", 50.0, 20.0),),  # performance validation, 1.1
    limit="bytes copied back",
)

LARGE = Comparison(
    "emergency-rollback-large",
    "safety",
    arms=(
        lazily("bytes copied back", "ranks:copied_back", 1024),
        lazily("snapshot", "ranks:snapped", 1024),
        lazily("rollback", "ranks:rolled_back", 1024),
    ),
    shape="5.2 M parameters, AdamW's moments, four seeds",
    # The aim for a model of 5 M: twice as long as the same bytes take to be copied, and 20 ms.
    goals=tuple(Goal(arm, *asked) for arm in ("snapshot", "rollback") for asked in (("ratio", 2.0), ("p50", 20.0))),
    limit="bytes copied back",
)

EMERGENCY = Comparison(
    "emergency-checkpoint",
    "safety",
    arms=(lazily("written and synced", "ranks:written"), lazily("emergency checkpoint", "ranks:in_emergency")),
    shape="four LoRA seeds with their optimizers, on disk",
    # unified design, 7: below 100 ms, found below 80
    goals=(Goal("emergency checkpoint", "p50", 100.0, 80.0), Goal("emergency checkpoint", "p95", 100.0, 80.0)),
    limit="written and synced",
)

# Numbers of CircuitBreakerState; a test holds them against the wire.
CLOSED, OPEN, HALF_OPEN = 1, 2, 3

ASKED = ("asked, closed", "asked, open", "asked, half-open", "failure", "failure, open", "success")

BREAKER = Comparison(
    "breaker",
    "safety",
    arms=(
        lazily("clock alone", "seeds.breaking:clock"),
        lazily("asked, closed", "seeds.breaking:asked", CLOSED),
        lazily("asked, open", "seeds.breaking:asked", OPEN),
        lazily("asked, half-open", "seeds.breaking:asked", HALF_OPEN),
        lazily("failure", "seeds.breaking:failed"),
        lazily("failure, open", "seeds.breaking:failed_again"),
        lazily("success", "seeds.breaking:succeeded"),
    ),
    unit="us",
    # unified design, 7: below 0.01 ms a call, found below 0.008
    goals=tuple(Goal(arm, "p50", 10.0, 8.0) for arm in ASKED),
    limit="clock alone",
    calls=1_000,  # of less than a microsecond
)

OPTIMIZER = Comparison(
    "optimizer-message",
    "safety",
    arms=(
        lazily("command parsed", "seeds.planted:parsed"),
        lazily("lease", "seeds.planted:applied", "lease"),
        lazily("reset", "seeds.planted:applied", "reset"),
        lazily("create", "seeds.planted:applied", "create"),
    ),
    shape="one command among 64 seeds of 8,352 parameters",
    # unified design, 7: below 1 ms, found below 0.8
    goals=tuple(Goal(arm, "p50", 1.0, 0.8) for arm in ("lease", "reset", "create")),
    limit="command parsed",
)

ROWS: tuple[Row, ...] = (ROLLBACK, LARGE, EMERGENCY, BREAKER, OPTIMIZER)
