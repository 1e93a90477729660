"""Bodies that are read as they lie come to the same as if they were parsed, and what would be refused still is."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given, strategies as st

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.kinds import Domain, Role
from esper.leyline.validate.messages import validate
from esper.narset.layout import MOST_ROW_BYTES
from esper.narset.regional import Regional
from esper.narset.zero_copy import LEARN_AFTER, Packed, readings

AT_NS = 1_700_000_000_000_000_000
NAMES = ("loss", "norm", "step_ms")
INFO = pb.TelemetryLevel.TELEMETRY_INFO
LEVELS = list(pb.TelemetryLevel.values())
NUMBERS = st.integers(0, 2**63 - 1)
VALUES = st.floats(width=64)


def packet(sequence: int, values: Sequence[float], *, at_ns: int = AT_NS, step: int = 300) -> pb.TelemetryPacket:
    named = dict(zip(NAMES, values, strict=True))
    return pb.TelemetryPacket(
        version=1, sequence=sequence, timestamp_ns=at_ns, level=INFO, global_step=step, values=named
    )


def packets(numbers: Sequence[int]) -> list[pb.TelemetryPacket]:
    return [packet(each, (each, -each, 1 / each), at_ns=AT_NS + each, step=300 + each) for each in numbers]


def frame(made: Sequence[pb.TelemetryPacket], shed: int = 0) -> pb.TelemetryFrame:
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=7, region="north", packets=made, shed=shed)


def sealed_as(target: str = "north") -> Header:
    return Header(
        1, Domain.TELEMETRY, 1, 7, 1, AT_NS, DeadlineKind.NONE, 0, 0, "run", Role.WORKER, "worker-0", target, False
    )


def told(body: bytes, message_type: type[Message]) -> list[Any] | None:
    """What a body says, by the library and the rules; None: it is refused."""
    try:
        message: Any = message_type.FromString(body)
        validate(message)
    except (DecodeError, RefusedError):
        return None
    if isinstance(message, pb.TelemetryPacket):
        return [facts(message)]
    return [message.source, message.incarnation, message.region, message.shed, *map(facts, message.packets)]


def facts(each: pb.TelemetryPacket) -> tuple[Any, ...]:
    """Of a packet with nothing but values, bit for bit."""
    assert not (each.metrics or each.events or each.packet_id or each.HasField("system_health"))
    values = sorted((name, struct.pack("<d", value)) for name, value in each.values.items())
    return each.sequence, each.timestamp_ns, each.global_step, each.level, each.source_subsystem, values


def unpacked(packed: Packed) -> list[Any]:
    """The same of what was not parsed."""
    layout, rows = packed.layout, packed.layout.read(packed.rows)
    assert rows.sequences.tolist() == list(packed.sequences)
    found: list[Any] = []
    if packed.head is not None:
        assert not packed.head.packets
        found += [packed.head.source, packed.head.incarnation, packed.head.region, packed.head.shed]
    for time_ns, sequence, step, row in zip(*(each.tolist() for each in rows), strict=True):
        values = sorted((name, struct.pack("<d", value)) for name, value in zip(layout.names, row, strict=True))
        found.append((sequence, time_ns, step, layout.level, layout.source, values))
    return found


FORMS: dict[str, tuple[type[Message], Message, Message]] = {
    "a frame": (pb.TelemetryFrame, frame(packets(range(200, 232))), frame(packets(range(232, 264)), shed=3)),
    "fewer packets": (pb.TelemetryFrame, frame(packets(range(200, 232))), frame(packets(range(300, 305)))),
    "a packet": (pb.TelemetryPacket, packets([200])[0], packets([201])[0]),
}


@pytest.mark.parametrize(("message_type", "first", "second"), FORMS.values(), ids=FORMS.keys())
def test_what_looks_like_the_message_before_is_not_parsed(
    message_type: type[Message], first: Message, second: Message
) -> None:
    reader, body = readings()[message_type](), second.SerializeToString()

    parsed = reader.parse(first.SerializeToString())
    packed = reader.parse(body)

    assert parsed == first
    assert isinstance(packed, Packed)
    assert unpacked(packed) == told(body, message_type)
    assert reader.rule(packed) == packed.layout.names


@pytest.mark.parametrize(("message_type", "first", "second"), FORMS.values(), ids=FORMS.keys())
def test_a_body_with_other_bytes_means_what_the_library_makes_of_it(
    message_type: type[Message], first: Message, second: Message
) -> None:
    chance, found = random.Random(5), Counter[str]()
    reader = readings()[message_type]()
    reader.parse(first.SerializeToString())
    for _ in range(4_000):
        body = harmed(second.SerializeToString(), chance)
        try:
            met = reader.parse(body)
        except DecodeError:
            met = None
        if isinstance(met, Packed):
            assert unpacked(met) == told(body, message_type)
        found[type(met).__name__] += 1

    assert min(found["Packed"], found[message_type.DESCRIPTOR.name], found["NoneType"]) > 100


def harmed(body: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, one taken out or put in, or the end cut off or grown."""
    data = bytearray(body)
    at = chance.randrange(len(data))
    match chance.randrange(6):
        case 0:
            del data[at]
        case 1:
            data.insert(at, chance.randrange(256))
        case 2:
            del data[at:]
        case 3:
            data += chance.choice((b"\x30\x05", b"\x30\x80\x00", b"\x12\x01x", b"\x08\x02", b"\x30", b"\x30\x00\x30"))
        case _:
            for place in chance.choices(range(len(data)), k=chance.randrange(1, 4)):
                data[place] ^= 1 << chance.randrange(8)
    return bytes(data)


ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, st.tuples(VALUES, VALUES, VALUES)), min_size=1, max_size=40)


@given(ROWS, st.sets(st.integers(1, 400), min_size=40, max_size=40), st.sampled_from(LEVELS), st.booleans())
def test_a_tier_folds_what_was_not_parsed_into_the_same_aggregates(
    rows: list[tuple[int, int, tuple[float, float, float]]], numbers: set[int], level: int, framed: bool
) -> None:
    made = [
        packet(number, values, at_ns=at_ns, step=step)
        for number, (at_ns, step, values) in zip(sorted(numbers), rows, strict=False)
    ]
    for each in made:
        each.level = level  # type: ignore[assignment]
    sent: list[Message] = [frame(made[:20]), frame(made[10:30], shed=9)] if framed else [*made, *made[:3]]
    by_reader, by_library = Regional("north"), Regional("north")
    readers = {message_type: reading() for message_type, reading in readings().items()}

    for message in sent:
        fold(by_library, message)
        fold(by_reader, readers[type(message)].parse(message.SerializeToString()))

    taken = by_reader.take(0.0)
    assert sum(each.num_packets for each in taken) == len(made[:30] if framed else made)
    assert merged(taken) == merged(by_library.take(0.0))


def fold(tier: Regional, message: Message | Packed) -> None:
    match message:
        case Packed():
            tier.on_packed(message, sealed_as(), 0.0, AT_NS)
        case pb.TelemetryFrame():
            tier.on_frame(message, 0.0, AT_NS)
        case pb.TelemetryPacket():
            tier.on_packet(message, sealed_as(), 0.0, AT_NS)


def merged(aggregates: Sequence[pb.AggregatedTelemetry]) -> list[Any]:
    """All that does not hang on which packets a window was made of."""
    counts = Counter[str]()
    for each in aggregates:
        for field in ("packets", "messages", "duplicates", "shed", "out_of_order", "late", "skewed"):
            counts[field] += getattr(each, f"num_{field}")
        counts.update(dict(each.level_counts))
        for name, statistics in each.metrics.items():
            counts[f"{name}.count"] += statistics.count
            counts[f"{name}.not_finite"] += statistics.num_non_finite
    metrics = [(name, each) for aggregate in aggregates for name, each in aggregate.metrics.items() if each.count]
    last = {name: max(newest(each) for met, each in metrics if met == name) for name, _ in metrics}
    ends = {
        name: (min(e.min for m, e in metrics if m == name), max(e.max for m, e in metrics if m == name))
        for name in last
    }
    times = [min(e.first_timestamp_ns for e in aggregates), max(e.last_timestamp_ns for e in aggregates)]
    return [counts, last, ends, times, max(each.max_step for each in aggregates)]


def newest(statistics: pb.MetricStatistics) -> tuple[int, str, int, float]:
    return statistics.last_timestamp_ns, statistics.last_source, statistics.last_sequence, statistics.last


def test_a_packet_of_another_region_is_refused_without_being_parsed() -> None:
    reader = readings()[pb.TelemetryPacket]()
    reader.parse(packets([200])[0].SerializeToString())

    with pytest.raises(RefusedError, match="region 'south'"):
        Regional("north").on_packed(reader.parse(packets([201])[0].SerializeToString()), sealed_as("south"), 0.0)


def test_producers_of_the_same_packets_share_what_is_known_of_them() -> None:
    make = readings()[pb.TelemetryPacket]
    layouts = []
    for reader in (make(), make()):
        reader.parse(packets([200])[0].SerializeToString())
        layouts.append(reader.parse(packets([201])[0].SerializeToString()).layout)

    assert layouts[0] is layouts[1]


def test_another_look_is_learnt_once_it_has_come_often_enough() -> None:
    reader = readings()[pb.TelemetryFrame]()
    reader.parse(frame(packets(range(1, 3))).SerializeToString())
    wider = frame(packets(range(200, 232))).SerializeToString()

    met = [type(reader.parse(wider)) for _ in range(LEARN_AFTER + 2)]

    assert met == [pb.TelemetryFrame] * (LEARN_AFTER + 1) + [Packed]


ODD: dict[str, pb.TelemetryPacket] = {
    "an event": pb.TelemetryPacket(events=[pb.TelemetryEvent(event_id="1")]),
    "a point": pb.TelemetryPacket(metrics=[pb.MetricPoint(name="latency", value=1.0)]),
    "a receipt": pb.TelemetryPacket(packet_id="command-1"),
    "health": pb.TelemetryPacket(system_health=pb.SystemHealth(cpu_percent=1.0)),
    "an unsound name": pb.TelemetryPacket(values={"n" * 300: 1.0}),
    "a number of ten groups": pb.TelemetryPacket(global_step=2**63),
    "more than is compared": pb.TelemetryPacket(values={f"{at:050}": 1.0 for at in range(MOST_ROW_BYTES // 50)}),
    "another version": pb.TelemetryPacket(version=2),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_what_has_more_to_it_than_numbers_or_is_unsound_is_never_learnt_from(odd: pb.TelemetryPacket) -> None:
    made = packets([200])[0]
    made.MergeFrom(odd)
    reader = readings()[pb.TelemetryPacket]()

    assert [reader.parse(made.SerializeToString()) for _ in range(3)] == [made] * 3


@pytest.mark.parametrize(("num_bytes", "is_learnt"), [(100, True), (2 * MOST_ROW_BYTES, False)])
def test_what_stands_before_the_packets_of_a_frame_is_not_kept_without_bound(num_bytes: int, is_learnt: bool) -> None:
    unknown = b"\x7a" + bytes([num_bytes & 127 | 128, num_bytes >> 7]) + bytes(num_bytes)
    body = unknown + frame(packets(range(200, 232))).SerializeToString()
    reader = readings()[pb.TelemetryFrame]()
    reader.parse(body)

    assert isinstance(reader.parse(body), Packed) == is_learnt


@pytest.mark.parametrize("tail", [b"\x40\x0a", b"\x41" + b"\x80" * 8, b"\x28\x0a", b"\x29" + b"\x80" * 8])
@pytest.mark.parametrize(("message_type", "first"), [form[:2] for form in FORMS.values()], ids=FORMS.keys())
def test_values_or_packets_of_another_kind_are_what_the_library_makes_of_them(
    message_type: type[Message], first: Message, tail: bytes
) -> None:
    """A field whose number is known and whose kind is not: all of it is passed over, whatever its bytes say."""
    body = first.SerializeToString() + tail

    assert readings()[message_type]().parse(body) == message_type.FromString(body)


def test_packets_whose_sequences_do_not_rise_are_parsed_and_refused() -> None:
    reader = readings()[pb.TelemetryFrame]()
    reader.parse(frame(packets(range(200, 232))).SerializeToString())
    wrong = frame([*packets(range(200, 231)), *packets([230])])

    met = reader.parse(wrong.SerializeToString())

    assert met == wrong
    with pytest.raises(RefusedError, match="sequence"):
        reader.rule(met)


def test_of_a_packed_frame_only_what_was_not_met_is_folded() -> None:
    tier, reader = Regional("north"), readings()[pb.TelemetryFrame]()
    fold(tier, reader.parse(frame(packets(range(200, 210))).SerializeToString()))

    fold(tier, reader.parse(frame([*packets(range(205, 215)), *packets(range(220, 222))]).SerializeToString()))

    [taken] = tier.take(0.0)
    assert (taken.num_packets, taken.num_duplicates, taken.num_messages) == (17, 5, 2)
    assert taken.metrics["loss"].sum == sum([*range(200, 215), 220, 221])
