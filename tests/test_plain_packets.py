"""What the rule on a message says of the names in it only makes folding faster: the figures are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.validate.telemetry import packet as packet_rule, telemetry_frame
from esper.narset.regional import Regional

AT_NS = 1_700_000_000_000_000_000
INFO = pb.TelemetryLevel.TELEMETRY_INFO
PLAIN = {"loss": 2.0, "norm": 3.5}


def packet(sequence: int, values: Mapping[str, float], *, at_ns: int = AT_NS) -> pb.TelemetryPacket:
    return pb.TelemetryPacket(version=1, sequence=sequence, timestamp_ns=at_ns, level=INFO, values=dict(values))


def frame(packets: Sequence[pb.TelemetryPacket]) -> pb.TelemetryFrame:
    return pb.TelemetryFrame(version=1, source="worker-0", incarnation=1, region="north", packets=packets)


def with_event(made: pb.TelemetryPacket) -> pb.TelemetryPacket:
    made.events.add(event_id="1", description="a retreat", level=INFO)
    return made


def with_point(made: pb.TelemetryPacket) -> pb.TelemetryPacket:
    made.metrics.add(name="latency", value=4.0)
    return made


FRAMES = {
    "alike": [packet(each, {"loss": each, "norm": -each}) for each in range(1, 9)],
    "in another order": [packet(1, PLAIN), packet(2, dict(reversed(PLAIN.items())))],
    "one name": [packet(1, {"loss": 1.0}), packet(2, {"loss": 3.0})],
    "no name": [packet(1, {}), packet(2, {})],
    "two kinds": [packet(1, PLAIN), packet(2, {"loss": 1.0, "rate": 2.0}), packet(3, PLAIN)],
    "one more": [packet(1, PLAIN), packet(2, {**PLAIN, "rate": 2.0})],
    "an event": [packet(1, PLAIN), with_event(packet(2, PLAIN)), packet(3, PLAIN)],
    "an event first": [with_event(packet(1, PLAIN)), packet(2, PLAIN)],
    "a point": [packet(1, PLAIN), with_point(packet(2, PLAIN))],
    "from the future": [packet(1, PLAIN), packet(2, {"loss": 9.0, "norm": 9.0}, at_ns=2 * AT_NS), packet(3, PLAIN)],
}


@pytest.mark.parametrize("packets", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_comes_to_the_same_whether_its_names_are_known_or_not(packets: list[pb.TelemetryPacket]) -> None:
    made, met_before = frame(packets), frame(packets[:1])
    known, unknown = Regional("north"), Regional("north")
    for tier, names in ((known, telemetry_frame(made)), (unknown, None)):
        tier.on_frame(met_before, 0.0, AT_NS, names)
        tier.on_frame(made, 0.0, AT_NS, names)
        tier.on_frame(made, 0.0, AT_NS, names)

    taken = known.take(1.0)

    assert taken == unknown.take(1.0)
    assert sum(each.num_packets for each in taken) == len(packets)


def test_names_are_said_where_packets_hold_nothing_but_values_of_the_same() -> None:
    names = telemetry_frame(frame(FRAMES["alike"]))

    assert names is not None
    assert set(names) == {"loss", "norm"}


@pytest.mark.parametrize("name", ["two kinds", "one more", "an event", "an event first", "a point"])
def test_no_names_are_said_where_a_packet_is_to_be_looked_at(name: str) -> None:
    assert telemetry_frame(frame(FRAMES[name])) is None


@pytest.mark.parametrize("bad", ["", "x" * 256])
def test_a_bad_name_is_refused_wherever_it_is_met(bad: str) -> None:
    for _ in range(2):
        with pytest.raises(RefusedError, match="a name in values"):
            packet_rule(packet(1, {"loss": 1.0, bad: 2.0}))
        with pytest.raises(RefusedError, match="a name in values"):
            telemetry_frame(frame([packet(1, PLAIN), packet(2, {"loss": 1.0, bad: 2.0})]))
