"""The arms of a bus row, each a process of its own, in turns; and the figures that their slices come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from bus_arms import limit
from bus_arms.peers import PEERS
from bus_rows.latency import between_two
from bus_rows.served import served
from bus_rows.session import Session, joined
from esper.bench.effort import Effort
from esper.bench.figures import DERIVED, Figure, not_measured
from esper.bench.row import Comparison, Unit
from esper.bench.statistics.summary import AGAIN, figures_of
from peers.turns import PEERS_AMOUNTS, absent, failures

OURS, BARE, LIMIT = "esper", "redis-py", "redis-benchmark"
PEER_SHARE = 10  # a peer's slice is shorter by this, and still lasts longer
PER_S = 200  # messages, where each is timed: all of the arms keep up with that
MS = 1e3


def throughput(name: str, what: str, effort: Effort) -> Iterator[Figure]:
    """Microseconds a message that waits in Redis: read, opened (one HMAC in redis-py), handled and acknowledged.

    The peers carry the sealed bytes and do not open them. One sample a slice; slices of all arms take turns.
    """
    with served(effort, PEERS_AMOUNTS) as session:
        num = session.amounts.num
        size = int(session.ask("ours", "size", what=what))
        modules = {OURS: "ours", OURS + AGAIN: "ours", BARE: "bare"}
        arms: dict[str, Callable[[], float]] = {
            arm: partial(_rate, session, module, what, num) for arm, module in modules.items()
        }
        arms |= {
            peer.name: partial(_rate, session, peer.module, what, num // PEER_SHARE) for peer in PEERS if peer.is_here()
        }
        if limit.is_here():
            arms[LIMIT] = partial(limit.consume, session.url, size, limit.num_of(num))
        rates = session.in_turns(name, "msg/s", arms)
        samples = {arm: [1.0 / rate for rate in found] for arm, found in rates.items()}
        yield from _figures(_row(name, "us", f"{size} bytes, slices of {num:,}"), samples, session)
        for arm, found in rates.items():
            if arm != OURS + AGAIN:
                rate = sorted(found)[len(found) // 2]
                yield Figure(name, arm, "rate", rate, "msg/s", len(found), DERIVED, higher=True)


def soon(name: str, what: str, effort: Effort) -> Iterator[Figure]:
    """Milliseconds from when a message was due to be published to its handler in another process, 200 a second.

    Nobody waits for an answer before the next is due, and what is sent late was due when it was due.
    """
    with served(effort, PEERS_AMOUNTS) as session:
        seconds = session.amounts.seconds / session.amounts.rounds
        ways: dict[str, Callable[[], list[float]]] = {
            OURS: partial(_between, session, "", what, seconds),
            OURS + AGAIN: partial(_between, session, "", what, seconds),
            BARE: partial(_between, session, "bare_", what, seconds),
        }
        ways |= {peer.name: partial(_peer, session, peer.module, seconds) for peer in PEERS if peer.is_here()}
        samples = joined(session.in_turns(name, "ms", ways))
        yield from _figures(_row(name, "ms", f"{PER_S}/s"), samples, session)


def _rate(session: Session, module: str, what: str, num: int) -> float:
    return num / float(session.ask(module, "consume", what=what, num=num))


def _between(session: Session, bare: str, what: str, seconds: float) -> list[float]:
    """Seconds of each message between two processes of ours, or of the bare client."""
    return [each / MS for each in between_two(session, f"{bare}listen", f"{bare}send", what, seconds, PER_S)]


def _peer(session: Session, module: str, seconds: float) -> list[float]:
    """The same between two processes of a peer."""
    given = {"num": int(seconds * PER_S), "seconds": seconds}
    session.tell(f"{module}:listener", "listen", **given)
    session.ask(f"{module}:sender", "send", **given)
    return [float(each) / MS for each in session.answer(f"{module}:listener")]


def _row(name: str, unit: Unit, shape: str) -> Comparison:
    return Comparison(name, "peers", (), unit, shape, limit=LIMIT)


def _figures(row: Comparison, samples: Mapping[str, Sequence[float]], session: Session) -> Iterator[Figure]:
    """Those of what was measured, and one for each arm that was not, which says why."""
    yield from figures_of(row, samples)
    missing = {peer.name: f"{peer.package} is not installed" for peer in PEERS if not peer.is_here()}
    if not limit.is_here() and row.unit == "us":
        missing[LIMIT] = limit.MISSING
    why = {arm: not_measured(words) for arm, words in missing.items()}
    yield from absent(row, {**why, **failures(session)})
