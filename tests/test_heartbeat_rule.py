"""What one producer's heartbeats name again is not looked at again, and what is refused once is refused again."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

import pytest

from esper.errors import RefusedError
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opener, Sealer
from esper.leyline.validate.rounds import HeartbeatRule
from tests.counted_kit import each_call
from tests.sealed import COORDINATOR, ENTRY, NOW_MS, NOW_NS, WORKER

MANIFESTS = [blueprint.manifest() for blueprint in BLUEPRINTS.values()]


def beat(manifests: Sequence[pb.KernelManifest] = MANIFESTS) -> pb.Heartbeat:
    return pb.Heartbeat(version=1, worker="worker-0", world_size=1, blueprints=manifests)


def calls_to_open_three(manifests: Sequence[pb.KernelManifest]) -> list[int]:
    """Functions in Python that are called to open each of three heartbeats of one producer."""
    sealer = Sealer(WORKER, Role.WORKER, "worker-0", clock_ns=lambda: NOW_NS)
    opener = Opener(COORDINATOR, guard=None, accept=[Domain.HEARTBEAT])
    calls: list[int] = []

    def note(_: FrameType) -> None:
        calls[-1] += 1

    for sealed in [sealer.seal(beat(manifests)) for _ in range(3)]:
        calls.append(0)
        with each_call(note):
            opener.open(sealed, ENTRY, NOW_MS)
    return calls


def test_blueprints_that_have_passed_take_no_call_for_each() -> None:
    first, *later = calls_to_open_three(MANIFESTS)
    _, *of_none = calls_to_open_three([])

    assert later == of_none
    assert first > later[0] + len(MANIFESTS)


def test_blueprints_that_take_much_memory_are_looked_at_each_time() -> None:
    many = [pb.KernelManifest(blueprint_id=f"blueprint-{number}", digest="0" * 64) for number in range(1_000)]

    first, second, third = calls_to_open_three(many)

    assert second == third >= len(many)
    assert first >= second


def test_what_differs_from_what_has_passed_is_looked_at() -> None:
    rule, bad = HeartbeatRule(), beat()
    bad.blueprints[-1].parameters.add(name="rank", minimum=2.0, maximum=1.0)

    rule(beat())
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"rank is 2\.0; expected a minimum up to 1\.0"):
            rule(bad)
    rule(beat())


def test_whoever_changes_a_message_that_has_passed_changes_nothing_of_what_is_known() -> None:
    rule, given = HeartbeatRule(), beat()
    rule(given)

    given.blueprints[0].blueprint_id = ""

    with pytest.raises(RefusedError, match="blueprint_id"):
        rule(given)
