"""From publish to handler at a steady thousand messages a second, alone and while telemetry saturates the server."""

from __future__ import annotations

from functools import partial

from bus_rows.session import Session, joined
from esper.bench.rounds.part import PartError

PER_SECOND = 1_000
QUIET, BUSY = "publish to handler", "commands while telemetry saturates"
ARMS = {
    "packet": ("listen", "send", "packet"),
    "command": ("listen", "send", "command"),
    "bare": ("bare_listen", "bare_send", "packet"),
    "bare again": ("bare_listen", "bare_send", "packet"),
}
NUM_SLICES = 5  # that an arm's time is cut into
FLOODED_S = 5.0  # at least: of one second's commands ten are slower than p99, and one stall of the machine delays more
LEAD_S = 0.3  # that telemetry floods before the first command and after the last


def measure(session: Session) -> None:
    quiet(session)
    busy(session)


def quiet(session: Session) -> None:
    """The arms take turns, each between the same two processes."""
    seconds = session.amounts.seconds / NUM_SLICES
    ways = {name: partial(between_two, session, *way, seconds) for name, way in ARMS.items()}
    samples = joined(session.in_turns(QUIET, "ms", ways, NUM_SLICES, warm=0))
    session.report.add_arms(QUIET, samples, "ms", against="bare")
    for name in ("packet", "command"):
        session.report.aim(QUIET, name, "p50", 1.0)
        session.report.aim(QUIET, name, "p99", 5.0)


def between_two(
    session: Session, listen: str, send: str, what: str, seconds: float, per_s: int = PER_SECOND
) -> list[float]:
    """Milliseconds of each message of a slice."""
    session.ask("pace:sender", "prepare")
    given = {"what": what, "num": int(seconds * per_s), "seconds": seconds}
    session.tell("pace:listener", listen, **given)
    session.ask("pace:sender", "listening")
    session.ask("pace:sender", send, **given)
    return [float(each) for each in session.answer("pace:listener")]


def busy(session: Session) -> None:
    """One process floods telemetry and one takes it in, both ours and sealed; commands go between two others."""
    try:
        taken = while_flooded(session, max(session.amounts.seconds, FLOODED_S))
    except PartError as error:
        session.failed(BUSY, "command", "ms", error.why)
        return
    session.report.add_arms(BUSY, {"command": taken}, "ms")
    session.report.aim(BUSY, "command", "p99", 10.0)


def while_flooded(session: Session, seconds: float) -> list[float]:
    """Milliseconds of each command; what the flood came to goes into the report."""
    flood_s, num = seconds + 2 * LEAD_S, int(seconds * PER_SECOND)
    session.ask("pace:sender", "prepare")
    before_s, ran_and_waited_s = float(session.ask("pace:sender", "server_seconds")), processors(session)
    num_forks = int(session.ask("pace:sender", "server_forks"))
    session.tell("pace:listener", "listen", what="command", num=num, seconds=seconds)
    session.ask("pace:sender", "listening")
    session.tell("pace:flood", "flood", seconds=flood_s)
    session.tell("pace:drain", "drain", seconds=flood_s)
    session.ask("pace:sender", "send", what="command", num=num, seconds=seconds, after_s=LEAD_S)
    taken = [float(each) for each in session.answer("pace:listener")]
    for arm, name in (("telemetry added", "flood"), ("telemetry handled", "drain")):
        count = int(session.answer(f"pace:{name}"))
        session.report.add(BUSY, arm, "rate", count / flood_s, "msg/s", count)
    used_s = float(session.ask("pace:sender", "server_seconds")) - before_s
    session.report.add(BUSY, "server", "mean", used_s / flood_s, "cores", 1)
    kept_waiting(session, ran_and_waited_s)
    num_forks = int(session.ask("pace:sender", "server_forks")) - num_forks
    session.report.add(BUSY, "server, rewriting its AOF", "count", num_forks, "forks", 1)
    return taken


def processors(session: Session) -> dict[str, list[float]]:
    """How long each process on a command's way has run so far, and waited for a processor: where these are fewer than
    the processes, that is the queue which commands stand in."""
    name, sender, listener = "ran_and_waited_s", "pace:sender", "pace:listener"
    return {
        "sender": session.ask(sender, name),
        "listener": session.ask(listener, name),
        "server": session.ask(sender, name, of_server=True),
    }


def kept_waiting(session: Session, before: dict[str, list[float]]) -> None:
    """Of the time that each process could have run."""
    for name, now in processors(session).items():
        arm = f"{name}, no processor free"
        if not now:
            session.report.add_missing(BUSY, arm, "share", "this kernel does not tell")
            continue
        ran_s, waited_s = (after - earlier for after, earlier in zip(now, before[name], strict=True))
        session.report.add(BUSY, arm, "mean", waited_s / (ran_s + waited_s), "share", 1)
