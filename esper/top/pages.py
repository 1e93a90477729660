"""What the pages say that open above the screen: a seed's history, every command, every worker, the keys."""

from __future__ import annotations

from datetime import tzinfo
from textwrap import wrap

from esper.leyline.lifecycle import gate_name, outcome_name, short
from esper.top import panes
from esper.top.form import DASH, clock, figure, whole
from esper.view.picture import Picture
from esper.view.seeds import Moment, Seed
from esper.view.wording import embargo

HELP = """\
up, down     choose a seed
enter        its history: stages, gates with their evidence, gain, commands
p            publish a command, in the words of `esper publish`; asks before it is sent
k            cull the chosen seed; asks first
space        pause the run, or let it go on; asks first
c            every command with its receipts
w            every worker, with what its newest heartbeat says
a            alarms: breakers that have opened, what was rejected, critical events
? or h       this page
q            quit

LANE     G=T=B-s-p-f: germinated, training, blending, shadowing, probationary,
         fossilized. Capitals: reached. x: lost there (culled, embargoed).
GATE     the gate that was evaluated last, and whether it was passed
GAIN     held-out loss with the seed off minus on, with its 95 % interval
LAG      entries that the worker's groups have not read yet
SMPL/S   examples a second, where the training script says
         step.loss(loss, examples=n)
BARRIER  latency from proposal to commit, over the newest 512 rounds
REJECTED messages refused by the processes that live, and commands refused,
         by reason
A dash stands for what is not known. Times are this machine's.""".splitlines()


def history(picture: Picture, seed_id: str, width: int, zone: tzinfo | None) -> list[str]:
    """Everything known of one seed."""
    seed = picture.seeds.by_id.get(seed_id)
    if seed is None:
        return [f"seed {seed_id} is not known"]
    epoch = max((worker.beat.epoch for worker in picture.workers.ordered), default=0)
    lines = [*_standing(seed, epoch), "", "HISTORY"]
    for moment in seed.moments:
        lines += _moment(moment, width, zone)
    mine = [order for order in picture.orders.newest if order.seed_id == seed_id]
    lines += ["", "COMMANDS"]
    for order in mine:
        lines += panes.orders_of(order, width, zone)
    return lines if mine else [*lines, "none that is known"]


def commands(picture: Picture, width: int, zone: tzinfo | None) -> list[str]:
    """Every command, newest first, with each answer to it."""
    newest = reversed(picture.orders.newest)
    return [line for order in newest for line in panes.orders_of(order, width, zone)] or ["no command so far"]


def workers(picture: Picture, width: int) -> list[str]:
    """Every worker, and what there is no room for on the screen."""
    pane = panes.workers(picture, width)
    lines = [pane.head, *pane.lines, ""]
    for worker in picture.workers.ordered:
        beat = worker.beat
        hyper = "  ".join(f"{name} {figure(value)}" for name, value in sorted(beat.hyperparameters.items()))
        lines += [
            f"{worker.name}  rank {beat.rank}/{beat.world_size}  region {beat.region}",
            f"  packets {whole(beat.packets)}  shed {whole(beat.shed)}  round {whole(beat.round_applied)}"
            f"  steps that waited {whole(beat.steps_waited)}",
            f"  accuracy {figure(beat.accuracy)}  {hyper}",
        ]
    return lines


def alarms(picture: Picture, zone: tzinfo | None) -> list[str]:
    """Breakers and what was rejected, whole; then critical events, newest first."""
    lines = [f"BREAKERS  {panes.breakers(picture)}", f"REJECTED  {panes.rejected(picture)}", ""]
    for signal in reversed(picture.alarms.signals):
        told = "  ".join(f"{name}={value}" for name, value in sorted(signal.attributes.items()))
        at = clock(signal.triggered_at_ns // 1_000_000, zone)
        lines.append(f"{at} {signal.origin} step {whole(signal.global_step)}  {signal.reason}  {told}")
    return lines if picture.alarms.signals else [*lines, "no critical event so far"]


def _standing(seed: Seed, epoch: int) -> list[str]:
    state = seed.state
    metrics = "  ".join(f"{name} {figure(value)}" for name, value in sorted(state.metrics.items()))
    lines = [
        f"{state.seed_id} at {state.site or DASH} ({state.blueprint_id or DASH})",
        f"{panes.lane(seed)}  {panes.stage(seed)}{'  paused' if state.paused else ''}",
        f"alpha {state.alpha:.3f}  since step {whole(state.stage_since_step)}  age {state.age_epochs} epochs"
        f"  generation {state.generation}  lr {figure(state.learning_rate)}",
        f"gain {panes.gain(seed.gain, wide=True)}",
        metrics,
    ]
    if waits := embargo(state, epoch):
        lines.append(f"embargoed {waits}")
    if seed.report is not None:
        lines.append(f"outcome {outcome_name(seed.report.outcome)}: {seed.report.detail or 'no detail'}")
    return lines


def _moment(moment: Moment, width: int, zone: tzinfo | None) -> list[str]:
    gate = ""
    if moment.gate:
        gate = f"  {gate_name(moment.gate)} {'passed' if moment.passed else 'FAILED'}"
    stage = short(moment.stage) if moment.passed else f"stays {short(moment.stage)}" if moment.stage else "held"
    lines = [f"step {whole(moment.step):>10}  {clock(moment.at_ms, zone):8}  {stage}{gate}"]
    told = "  ".join(f"{name} {figure(value)}" for name, value in sorted(moment.evidence.items()))
    for text in filter(None, (moment.detail, told)):
        lines += [f"    {line}" for line in wrap(text, max(20, width - 8))]
    return lines
