"""What befalls a world from outside: an adversary who can write, an operator's accidents, clocks that step."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.record import DEAD, EFFECTS, JOBS, ORDERS
from tests.simulation.stream import Stream
from tests.simulation.world import World

STEP_MS = 20_000  # the most that the server's clock is ever wrong: less than freshness allows
SNAPSHOT_EVERY_S = 1.0


def arrange(world: World) -> None:
    """Put everything that the plan holds on the agenda."""
    plan = world.plan
    for _ in range(plan.clock_steps):
        world.after(world.dice.uniform(0, plan.quiet_at_s), lambda: step_clock(world))
    for kind in plan.losses:
        world.after(world.dice.uniform(2.0, plan.quiet_at_s), lambda kind=kind: lose(world, kind))  # type: ignore[misc]
    if "rollback" in plan.losses:
        repeat(world, SNAPSHOT_EVERY_S, world.remember)
    if plan.adversary:
        repeat(world, plan.quiet_at_s / 20, lambda: attack(world))
    world.after(plan.quiet_at_s, lambda: setattr(world, "calm", True))


def repeat(world: World, every_s: float, act: Callable[[], None]) -> None:
    """Until the world is calm."""

    def again() -> None:
        if not world.calm:
            act()
            world.after(world.dice.uniform(0.5, 1.5) * every_s, again)

    world.after(0.01, again)


def step_clock(world: World) -> None:
    world.offset_ms = world.dice.randint(-STEP_MS // 2, STEP_MS // 2)
    world.note("server", f"its clock is {world.offset_ms} ms off")


def lose(world: World, kind: str) -> None:
    """An accident. Of what was sent before, only a lost group leaves everything as it was."""
    record = world.record
    record.faults[kind] += 1
    stream = world.dice.choice([JOBS, ORDERS])
    if kind != "group":
        record.lost_at_s = world.now_s
    record.forget_deliveries()
    match kind:
        case "group":
            facts = world.command("XINFO", "GROUPS", stream) or []
            for group in facts:
                world.command("XGROUP", "DESTROY", stream, group[1])
        case "stream":
            world.command("DEL", stream)
        case "flush":
            world.command("FLUSHALL")
            record.effects.clear()
            record.dead.clear()
        case "rollback":
            world.fall_back()


def attack(world: World) -> None:
    """Add something that must not take effect. Of messages that history lost nothing is shown again."""
    record, dice = world.record, world.dice
    since = [sent for sent in record.sent.values() if sent.tried_s > record.lost_at_s]
    if not since:
        return
    sent = dice.choice(since)
    kind = dice.choice(["copy", "copy", "flip", "elsewhere", "junk", "empty"])
    stream, sealed, field = sent.stream, bytearray(sent.sealed), b"m"
    match kind:
        case "flip":
            sealed[dice.randrange(len(sealed))] ^= 1 << dice.randrange(8)
        case "elsewhere":
            stream = ORDERS if stream == JOBS else JOBS
        case "junk":
            sealed = bytearray(dice.randbytes(dice.randrange(200)))
        case "empty":
            field = b"x"
    entry_id = world.command("XADD", stream, "*", field, bytes(sealed))
    if entry_id is not None:
        record.forged[f"{stream} {entry_id.decode()}"] = kind
    record.faults[kind] += 1


def streams(world: World) -> dict[str, Stream]:
    """The streams that are there."""
    named = {name: world.model.keys.find(name.encode(), Stream) for name in (JOBS, ORDERS, EFFECTS, DEAD)}
    return {name: stream for name, stream in named.items() if stream is not None}
