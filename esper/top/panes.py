"""What each pane of the screen says: lines of text from a picture. Pure, and nothing is told by colour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import tzinfo

from esper.leyline.lifecycle import (
    BLENDING,
    CULLED,
    EMBARGOED,
    FOSSILIZED,
    GERMINATED,
    PROBATIONARY,
    RESETTING,
    SHADOWING,
    TERMINATED,
    TRAINING,
    gate_name,
    short,
    status_name,
)
from esper.top.form import DASH, age, clock, columns, figure, rate, whole
from esper.view.alarms import Breaker
from esper.view.flow import TIERS
from esper.view.orders import Order
from esper.view.picture import Picture
from esper.view.seeds import Gain, Moment, Seed
from esper.view.wording import told
from esper.view.workers import TROUBLED, Worker

WIDE = 100
"""Columns from which on more is shown of workers and commands."""
WIDE_SEEDS = 108
"""Of seeds: so many hold a gain with its interval, +0.123 [+0.112, +0.134]."""
LANE = (GERMINATED, TRAINING, BLENDING, SHADOWING, PROBATIONARY, FOSSILIZED)
LOST = frozenset({CULLED, EMBARGOED, RESETTING})
OVER = "x"
MOST_ALIKE = 4
"""Workers whose answers are alike and still told one by one."""


@dataclass(frozen=True, slots=True)
class Pane:
    """A heading and a line for each thing. `empty` is said where there is none."""

    head: str
    rows: Sequence[str]
    empty: str = ""

    @property
    def lines(self) -> list[str]:
        return list(self.rows) or [self.empty]


def workers(picture: Picture, width: int) -> Pane:
    """Where each worker is, how fast it goes, and what it has not read yet; first those that are silent or evicted."""
    wide = width >= WIDE
    widths = (14, 4, 9, -10, -6, -10, -7, -7, -6, -6, 10) if wide else (11, -10, -6, -10, -6, -6, -6, -6, 10)
    names = ("WORKER", "RANK", "REGION", "STEP", "EPOCH", "LOSS", "STEP/S", "SMPL/S", "LAG", "HEARD", "STATE")
    shown = names if wide else _without_place(names)
    rows = []
    troubled = {worker.name: worker.state(picture.now_ms) in TROUBLED for worker in picture.workers.ordered}
    for worker in sorted(picture.workers.ordered, key=lambda worker: not troubled[worker.name]):
        cells = _worker(worker, picture.now_ms)
        rows.append(columns(cells if wide else _without_place(cells), widths))
    return Pane(columns(shown, widths), rows, "no worker has been heard of")


def _worker(worker: Worker, now_ms: int) -> tuple[str, ...]:
    beat, state = worker.beat, worker.state(now_ms)
    return (
        worker.name,
        f"{beat.rank}/{beat.world_size}",
        beat.region,
        whole(beat.step),
        whole(beat.epoch),
        figure(beat.loss),
        rate(worker.steps_per_s(now_ms)),
        rate(worker.samples_per_s(now_ms)),
        whole(worker.lag),
        age(now_ms - worker.heard_ms),
        state.upper() if state in TROUBLED else state,
    )


def _without_place(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Rank and region are left out where there is no room."""
    return cells[0], *cells[3:]


def seeds(picture: Picture, width: int) -> Pane:
    """A swimlane for each seed: reached stages in capitals, those to come in small letters, x where it was lost."""
    wide = width >= WIDE_SEEDS
    widths = (14, 14, 10, 11, 12, -6, 8, 0) if wide else (12, 12, 11, 12, -6, 8, 0)
    names = ("SEED", "SITE", "BLUEPRINT", "LANE", "STAGE", "ALPHA", "GATE", "GAIN [95%]" if wide else "GAIN")
    rows = [columns(_seed(seed, wide), widths) for seed in picture.seeds.ordered]
    return Pane(columns(names if wide else _without_blueprint(names), widths), rows, "no seed so far")


def _seed(seed: Seed, wide: bool) -> tuple[str, ...]:
    state = seed.state
    cells = (
        state.seed_id,
        state.site or DASH,
        state.blueprint_id or DASH,
        lane(seed),
        stage(seed) + (" paused" if state.paused else ""),
        DASH if seed.is_gone or not state.stage else f"{state.alpha:.2f}",
        verdict(seed.last_gate),
        gain(seed.gain, wide=wide),
    )
    return cells if wide else _without_blueprint(cells)


def _without_blueprint(cells: tuple[str, ...]) -> tuple[str, ...]:
    return (*cells[:2], *cells[3:])


def stage(seed: Seed) -> str:
    """GONE: the process that had it began anew without it."""
    return "GONE" if seed.is_gone else short(seed.stage) if seed.stage else DASH


def lane(seed: Seed) -> str:
    """G=T=B-s-p-f: the stages of a life, capitals up to the one that it came to; one that was lost ends there."""
    reached = _reached(seed)
    letters = [short(stage)[0] if place <= reached else short(stage)[0].lower() for place, stage in enumerate(LANE)]
    text = letters[0]
    for place, letter in enumerate(letters[1:], start=1):
        text += ("=" if place <= reached else "-") + letter
    if reached < 0:
        return OVER if seed.stage in LOST else text
    if seed.stage in LANE and not seed.is_gone:
        return text
    if LANE[reached] == FOSSILIZED and (seed.is_gone or seed.stage == TERMINATED):
        return text  # the slot is closed, and the fossil stays
    return text[: 2 * reached + 1] + f"={OVER}"


def _reached(seed: Seed) -> int:
    """Place in LANE of the last stage of it that this life came to; -1: none."""
    if seed.stage in LANE:
        return LANE.index(seed.stage)
    passed = [moment.stage for moment in seed.moments if moment.passed and moment.stage in LANE]
    return LANE.index(passed[-1]) if passed else -1


def verdict(gate: Moment | None) -> str:
    """G1 ok, G4 FAIL."""
    if gate is None:
        return DASH
    return f"{gate_name(gate.gate)[:2]} {'ok' if gate.passed else 'FAIL'}"


def gain(measured: Gain | None, *, wide: bool) -> str:
    """Of the loss, with its interval where there is room."""
    if measured is None:
        return DASH
    interval = f" [{measured.low:+.3g}, {measured.high:+.3g}]" if wide else ""
    return f"{measured.mean:+.3g}{interval}"


def barrier(picture: Picture) -> str:
    rounds = picture.rounds
    newest = rounds.latencies_ms[-1] if rounds.latencies_ms else None
    p50, p99 = (figure(rounds.latency_ms(percent)) for percent in (50, 99))
    seen = rounds.committed + rounds.aborted
    return (
        f"round {rounds.last_round:,}  p50 {p50} ms  p99 {p99}  last {figure(newest)}"
        f"  aborted {rounds.aborted:,}/{seen:,}  deviated {rounds.deviations:,}"
    )


def telemetry(picture: Picture) -> str:
    flow = picture.flow
    packets, regional, global_ = (rate(flow.per_s(tier)) for tier in TIERS)
    first, second = (DASH if ratio is None else f"{ratio:.3g}:1" for ratio in flow.reductions)
    lost = {"shed": flow.totals.shed, "gaps": flow.totals.gaps}
    missing = "  ".join(f"{name} {number:,}" for name, number in lost.items() if number) or "none lost"
    missing = missing if flow.is_known else f"lost {DASH}"
    return f"packets {packets}/s  regional {regional} ({first})  global {global_} ({second})  {missing}"


def breakers(picture: Picture) -> str:
    """By name and state, the one opened last first; one whose time is unknown is told as opened."""
    alike: dict[tuple[str, str], list[Breaker]] = {}
    for breaker in sorted(picture.alarms.breakers.values(), key=lambda breaker: -breaker.opened_ms):
        alike.setdefault((breaker.name, breaker.state(picture.now_ms)), []).append(breaker)
    told = [_breakers(name, state, found, picture.now_ms) for (name, state), found in alike.items()]
    return "; ".join(told) or "none has opened"


def _breakers(name: str, state: str, found: Sequence[Breaker], now_ms: int) -> str:
    word = "OPEN" if state == "open" else state
    times = sum(breaker.times for breaker in found)
    often = f", {times}x" if times > len(found) else ""
    where = ", ".join(sorted(breaker.worker for breaker in found))
    return f"{name} {word} on {where} ({age(now_ms - found[0].opened_ms)} ago{often})"


def rejected(picture: Picture) -> str:
    return "  ".join(f"{number:,} {reason}" for reason, number in picture.rejected.most_common()) or "none"


def rollback(picture: Picture) -> str:
    """The last one, of a run that has gone back."""
    step, told = max(picture.seeds.rollbacks.items())
    return f"before step {step:,}: {told}"


def orders(picture: Picture, width: int, zone: tzinfo | None) -> Pane:
    """Commands, newest first, with what became of them."""
    widths = (8, 44, 11, 0) if width >= WIDE else (8, 32, 27, 0)
    rows = [columns(_order(order, zone, width), widths) for order in reversed(picture.orders.newest)]
    names = ("TIME", "COMMAND", "BY", "RECEIPTS") if width >= WIDE else ("TIME", "COMMAND", "RECEIPTS", "BY")
    nothing = "none lately" if picture.orders.num_untold else "no command so far"
    return Pane(columns(names, widths), rows, nothing)


def _order(order: Order, zone: tzinfo | None, width: int) -> tuple[str, ...]:
    words = told(order.command) if order.command is not None else order.command_id or "(unread)"
    last = (order.producer or DASH, receipts(order))
    return clock(order.at_ms, zone), words, *(last if width >= WIDE else reversed(last))


def receipts(order: Order) -> str:
    """Applied 2/2 at step 108; REJECTED embargoed: why."""
    refusal = order.refusal
    if refusal is not None:
        who = f" (by {refusal.worker})" if order.status == "failed" else ""
        detail = f": {refusal.detail}" if refusal.detail else ""
        return f"{order.status.upper()} {order.reason}{detail}{who}"
    if order.verdict is None and not order.outcomes:
        return "published, no answer yet"
    return _applied(order)


def _applied(order: Order) -> str:
    size = order.verdict.world_size if order.verdict is not None else 0
    steps = sorted({outcome.step for outcome in order.outcomes.values()})
    steps = steps or [order.verdict.step if order.verdict is not None else 0]
    where = f"step {whole(steps[0])}" if len(steps) == 1 else f"steps {whole(steps[0])}-{whole(steps[-1])}"
    return f"{order.status} {len(order.outcomes)}/{size or '?'} {where}"


def answers(order: Order) -> list[str]:
    """Every receipt of a command, one a line; of many that say the same how many they are. Step 0: it came to none."""
    alike: dict[tuple[int, int, str], list[str]] = {}
    for receipt in order.answers:
        alike.setdefault((receipt.status, receipt.step, receipt.detail), []).append(receipt.worker)
    return [
        f"{status_name(status):9} {who:12}{f' step {whole(step)}' if step else ''}{f'  {detail}' if detail else ''}"
        for (status, step, detail), workers in alike.items()
        for who in (workers if len(workers) <= MOST_ALIKE else [f"{len(workers)} workers"])
    ]


def orders_of(order: Order, width: int, zone: tzinfo | None) -> list[str]:
    """A command and each answer to it."""
    words = told(order.command) if order.command is not None else "(content not readable with this keyring)"
    head = f"{clock(order.at_ms, zone)}  {words}  by {order.producer or DASH}  {order.command_id}  {order.status}"
    return [head, *(f"    {line}" for line in answers(order))]
