"""Ranges of what a run leaves on record of itself."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.validate import bounds
from esper.leyline.validate.rounds import receipt, worker_report

NUM_ARGUMENTS = 256
NUM_ROUNDS = 65_536
NUM_NUMERICS = 64


def run_record(message: pb.RunRecord) -> None:
    """A trainer has begun, has judged requests, or has ended."""
    bounds.name("worker", message.worker)
    bounds.at_least("world_size", message.world_size, 1)
    if message.rank >= message.world_size:
        raise bounds.refuse("rank", message.rank, f"below world_size {message.world_size}")
    match message.WhichOneof("said"):
        case "began":
            run_began(message.began)
        case "judged":
            round_judged(message.judged)
        case "ended":
            worker_report(message.ended.report)
            bounds.text("not_replayable", message.ended.not_replayable, bounds.SENTENCE_BYTES)
            if message.ended.orders_digest:
                bounds.digest("orders_digest", message.ended.orders_digest)
        case _:
            raise bounds.refuse("said", "nothing", "began, judged or ended")


def run_began(began: pb.RunBegan) -> None:
    """What a replay must have alike."""
    bounds.at_least("first_step", began.first_step, 1)
    bounds.digest("parameter_digest", began.parameter_digest)
    bounds.digest("part_digest", began.part_digest, optional=True)
    bounds.text("decisions_after", began.decisions_after)
    bounds.at_least("num_threads", began.num_threads, 1)
    for name in ("esper_version", "torch_version", "python_version", "machine", "device"):
        bounds.text(name, getattr(began, name), bounds.NAME_BYTES)
    bounds.count("script", began.script, NUM_ARGUMENTS)
    for argument in began.script:
        bounds.text("script", argument, bounds.SENTENCE_BYTES)
    bounds.count("rounds_again", began.rounds_again, NUM_ROUNDS)
    bounds.texts("numerics", began.numerics, NUM_NUMERICS)


def round_judged(judged: pb.RoundJudged) -> None:
    """Outcomes of the requests of one commit."""
    bounds.at_least("round", judged.round, 1)
    bounds.count("outcomes", judged.outcomes, bounds.NUM_SEEDS)
    for outcome in judged.outcomes:
        receipt(outcome)
