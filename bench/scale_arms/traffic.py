"""Sealed messages of a worker, made once and sent many times: what Redis does with them is the same."""

from __future__ import annotations

from esper.leyline import contracts as pb
from telemetry_arms.traffic import IN_A_MESSAGE, messages, values_of, worker

DIGEST = bytes(32)


def frame(directory: str) -> bytes:
    """32 packets of five metrics."""
    return worker(directory).seal(next(iter(messages("frames", values_of(IN_A_MESSAGE["frames"]), 1))))


def vote(directory: str, num_seeds: int = 1) -> bytes:
    """What a rank answers to a proposal, with the states of its seeds."""
    seeds = [
        pb.SeedState(
            seed_id=f"seed-{number}",
            stage=pb.SeedLifecycleStage.SEED_STAGE_TRAINING,
            gradient_norm=0.5,
            learning_rate=1e-3,
            site=f"blocks.{number}.mlp",
            blueprint_id="mlp",
            alpha=0.5,
            stage_since_step=40_000,
            generation=1,
            metrics={"fit": 0.5, "size": 0.1},
        )
        for number in range(num_seeds)
    ]
    return worker(directory).seal(
        pb.BarrierVote(
            version=1,
            round=1_000,
            roster_generation=1,
            worker="worker-0",
            step=40_000,
            parameter_digest=DIGEST,
            gradient_digest=DIGEST,
            seeds=seeds,
            optimizers={f"seed-{number}": 1 for number in range(num_seeds)},
        )
    )
