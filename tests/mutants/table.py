"""Every planted bug, and who finds it."""

from __future__ import annotations

from tests.mutants.planted import (
    aggregating,
    believing,
    folding,
    leading,
    once,
    reading,
    replaying,
    restarting,
    resuming,
    settling,
    timekeeping,
    watching,
)

MUTANTS = (
    *reading.MUTANTS,
    *settling.MUTANTS,
    *aggregating.MUTANTS,
    *believing.MUTANTS,
    *folding.MUTANTS,
    *once.MUTANTS,
    *leading.MUTANTS,
    *resuming.MUTANTS,
    *replaying.MUTANTS,
    *restarting.MUTANTS,
    *timekeeping.MUTANTS,
    *watching.MUTANTS,
)
