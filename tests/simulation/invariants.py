"""What must hold once a world is quiet, told from the record alone."""

from __future__ import annotations

from collections import Counter

from tests.simulation.record import JOBS, ORDERS, Key, Record
from tests.simulation.trouble import streams
from tests.simulation.worker import GROUP
from tests.simulation.world import World

MAX_FAILED = 5
MAX_HELD = 1_000
LETTER = (b"stream", b"entry_id", b"reason")


def settled(world: World) -> bool:
    """Whether every group has been given everything and has acknowledged it."""
    for name, stream in streams(world).items():
        expected = {JOBS: 1, ORDERS: world.plan.num_ranks}.get(name, 0)
        if len(stream.groups) < expected:
            return False
        for group in stream.groups.values():
            if group.leases or stream.after(group.last, 1):
                return False
    return True


def check(world: World) -> None:
    """Everything; what is broken goes into the record."""
    record = world.record
    check_quiet(world)
    check_group(world, record)
    for rank in range(world.plan.num_ranks):
        check_rank(world, record, f"rank{rank}")
    check_dead(world, record)
    record.expect(record.largest["held"] <= MAX_HELD, f"{record.largest['held']} entries in hand at once")


def check_quiet(world: World) -> None:
    for name, stream in streams(world).items():
        for group_name, group in stream.groups.items():
            left = len(stream.after(group.last)) + len(group.leases)
            world.record.expect(not left, f"{left} entries of {name} are left to {group_name.decode()}")


def must_count(world: World, record: Record, stream: str) -> list[Key]:
    """Messages whose effect is owed: acknowledged, and not sent before history was lost."""
    return [
        key
        for key, sent in record.sent.items()
        if sent.acknowledged and sent.stream == stream and sent.tried_s > record.lost_at_s
    ]


def check_effects(record: Record, effects: Counter[Key], owed: list[Key], excused: set[Key], who: str) -> None:
    for key, number in effects.items():
        record.expect(number == 1, f"{key} took effect {number} times in {who}")
        record.expect(key in record.sent, f"{key} took effect in {who} and was never sent")
    for key in owed:
        record.expect(key in effects or key in excused, f"{key} was acknowledged and never took effect in {who}")


def check_group(world: World, record: Record) -> None:
    effects = Counter(text.decode().split("@")[0] for text in record.effects.values())
    entries = [text.decode().split("@")[1] for text in record.effects.values()]
    check_origins(record, JOBS, entries)
    given_up = dead_keys(world, record)
    check_effects(record, effects, must_count(world, record, JOBS), given_up, GROUP)
    for key in effects:
        record.expect(not (key in record.sent and record.sent[key].poison), f"{key} is poison and took effect")
    for (group, entry_id), number in record.handled.items():
        record.expect(number <= MAX_FAILED or bool(world.plan.losses), f"{entry_id} failed {number} times in {group}")
        exact = not (world.plan.losses or world.plan.crash or world.plan.lost or world.plan.late)
        record.expect(number >= MAX_FAILED - 2 or not exact, f"{entry_id} failed only {number} times in {group}")


def check_rank(world: World, record: Record, name: str) -> None:
    texts = [text.decode().split("@") for text in record.local.get(name, [])]
    check_origins(record, ORDERS, [entry_id for _, entry_id in texts])
    excused = dead_keys(world, record, name)
    check_effects(record, Counter(key for key, _ in texts), must_count(world, record, ORDERS), excused, name)


def check_origins(record: Record, stream: str, entry_ids: list[str]) -> None:
    """What was forged has no effect; a verbatim copy may stand for its original, once."""
    for entry_id in entry_ids:
        place = f"{stream} {entry_id}"  # a server that fell back may give an id twice
        kind = "" if place in record.genuine else record.forged.get(place, "copy")
        record.expect(kind in ("", "copy"), f"entry {entry_id} of {stream} took effect: {kind}")


def dead_keys(world: World, record: Record, group: str = GROUP) -> set[Key]:
    """Messages set aside after five failed deliveries, as they deserve."""
    by_bytes = {sent.sealed: key for key, sent in record.sent.items()}
    return {
        by_bytes[letter[b"m"]]
        for letter in record.dead.values()
        if letter[b"reason"] == b"poison" and letter[b"group"].decode() == group and letter.get(b"m") in by_bytes
    }


def check_dead(world: World, record: Record) -> None:
    """Set aside is only what was forged, sent twice, or failed five times, exactly."""
    for at, letter in record.dead.items():
        stream, entry_id, reason = (letter[name].decode() for name in LETTER)
        place = f"{stream} {entry_id}"
        kind = record.forged.get(place, "")
        if place in record.genuine and place in record.forged:
            continue  # a server that fell back gave this id twice
        if reason == "poison":
            check_poison(world, letter, record.attempts_at_death[at])
        elif kind in ("", "copy"):
            record.expect(reason == "replayed", f"{entry_id} of {stream}, not forged, is refused as {reason}")
        else:
            record.expect(
                reason != "replayed" or kind == "flip", f"{entry_id} of {stream}, {kind}, refused as {reason}"
            )


def check_poison(world: World, letter: dict[bytes, bytes], deliveries: int) -> None:
    """Five failed deliveries, and the one that sets it aside; more only where the reply to that one was lost."""
    plan, entry_id = world.plan, letter[b"entry_id"].decode()
    if plan.losses:
        return
    exact = not (plan.crash or plan.lost or plan.late)
    fits = deliveries == MAX_FAILED + 1 if exact else deliveries > MAX_FAILED
    fits = fits and int(letter[b"attempts"]) == deliveries - 1
    world.record.expect(fits, f"{entry_id} is set aside at delivery {deliveries}")
