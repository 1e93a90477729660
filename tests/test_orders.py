"""Commits matched with the commands that they name."""

from __future__ import annotations

import hashlib

import pytest

from esper.bus.group.delivery import Delivery
from esper.errors import RefusedError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened
from esper.runtime.beside.orders import MOST_HELD, MOST_REFUSED, Orders

HEADER = Header(
    key_id=1,
    domain=Domain.COMMAND,
    kind=101,
    incarnation=1,
    sequence=1,
    issued_at_ns=0,
    deadline_kind=DeadlineKind.NONE,
    deadline=0,
    roster_generation=0,
    run_id="r",
    role=Role.CONTROLLER,
    producer="p",
    target="*",
)

REPLAYED = RefusedError(pb.ReasonCode.REASON_REPLAYED, "was met before")
JUNK = RefusedError(pb.ReasonCode.REASON_BAD_SEAL, "the seal does not fit")


def delivery(stream: str, entry: str) -> Delivery:
    return Delivery(stream, "worker-0", entry, b"", 1, "worker-0")


def command(entry: str) -> tuple[Opened, Delivery]:
    message = pb.AdaptationCommand(command_id=f"id-{entry}")
    return Opened(HEADER, message, entry.encode(), entry, False), delivery("commands", entry)


def commit(round_: int, *entries: str, position: str = "", generation: int = 1) -> pb.BarrierCommit:
    refs = [
        pb.CommittedCommand(stream="commands", entry_id=e, envelope_digest=hashlib.sha256(e.encode()).digest())
        for e in entries
    ]
    return pb.BarrierCommit(
        round=round_,
        roster_generation=generation,
        effective_step=9,
        commands=refs,
        commands_position=position,
        digest=barrier_digest(9, refs, []),
    )


def test_a_commit_waits_for_the_command_that_it_names() -> None:
    orders = Orders()
    early, _ = orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))

    late, _ = orders.on_command("commands", *command("1-0"))

    assert early == []
    assert [message.commit.commands[0].adaptation.command_id for message in late] == ["id-1-0"]


def kinds(messages: list[pb.ToTrainer]) -> list[str | None]:
    return [message.WhichOneof("message") for message in messages]


def test_what_follows_a_commit_that_waits_for_a_command_waits_behind_it() -> None:
    orders = Orders()
    orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))
    told, _ = orders.on_proposal(pb.BarrierProposal(round=2, roster_generation=1), delivery("decisions", "10-0"))
    ended, done = orders.on_abort(pb.BarrierAbort(round=2, roster_generation=1), delivery("decisions", "11-0"))

    said, settled = orders.on_command("commands", *command("1-0"))

    assert (told, ended, done) == ([], [], [])
    assert kinds(said) == ["commit", "proposal", "abort"]
    assert [d.entry_id for d in settled] == ["11-0", "10-0"]


def test_rounds_proposed_before_this_trainer_began_are_past_also_where_they_are_decided_later() -> None:
    orders = Orders(past=(9, 0))
    early, late = pb.BarrierProposal(round=4), pb.BarrierProposal(round=5)

    past = [
        orders.is_past(early, delivery("decisions", "9-0")),
        orders.is_past(commit(4), delivery("decisions", "10-0")),
        orders.is_past(late, delivery("decisions", "11-0")),
    ]

    assert past == [True, True, False]


def test_a_round_applied_settles_its_decision_and_every_entry_judged() -> None:
    orders = Orders()
    for entry in ("1-0", "2-0", "3-0"):
        orders.on_command("commands", *command(entry))
    orders.on_commit(commit(1, "1-0", position="2-0"), delivery("decisions", "9-0"))

    settled = orders.on_applied(pb.RoundApplied(round=1))

    assert {(d.stream, d.entry_id) for d in settled} == {("decisions", "9-0"), ("commands", "1-0"), ("commands", "2-0")}
    assert orders.on_applied(pb.RoundApplied(round=1)) == []


def test_the_first_decision_of_a_round_counts() -> None:
    orders = Orders()
    orders.on_abort(pb.BarrierAbort(round=1, roster_generation=1), delivery("decisions", "8-0"))

    messages, done = orders.on_commit(commit(1), delivery("decisions", "9-0"))

    assert messages == []
    assert [d.entry_id for d in done] == ["9-0"]


def test_a_decision_of_an_older_roster_is_ignored() -> None:
    orders = Orders()
    orders.on_proposal(pb.BarrierProposal(round=1, roster_generation=2), delivery("decisions", "1-0"))

    messages, _ = orders.on_commit(commit(2, generation=1), delivery("decisions", "2-0"))

    assert messages == []


def test_a_commit_over_other_bytes_stops_the_rank() -> None:
    orders = Orders()
    opened, at = command("1-0")
    other = Opened(HEADER, opened.message, b"other", "1-0", False)
    orders.on_command("commands", other, at)

    with pytest.raises(TrainingError, match="names other bytes for entry 1-0"):
        orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))


def test_a_commit_whose_digest_does_not_cover_it_stops_the_rank() -> None:
    altered = commit(1, "1-0")
    altered.effective_step = 10

    with pytest.raises(TrainingError, match="digest of round 1"):
        Orders().on_commit(altered, delivery("decisions", "9-0"))


def test_a_commit_that_names_an_entry_refused_here_stops_the_rank() -> None:
    orders = Orders()
    orders.on_refused("commands", delivery("commands", "1-0"), REPLAYED)

    with pytest.raises(TrainingError, match="refused here: was met before"):
        orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))


def test_an_entry_refused_after_its_commit_was_read_stops_the_rank_too() -> None:
    orders = Orders()
    orders.on_commit(commit(1, "1-0", "2-0"), delivery("decisions", "9-0"))  # the logs are read side by side
    orders.on_refused("commands", delivery("commands", "2-0"), REPLAYED)

    with pytest.raises(TrainingError, match="entry 2-0 of :commands, refused here: was met before"):
        orders.on_command("commands", *command("1-0"))


def test_a_commit_does_not_wait_for_an_entry_that_is_refused() -> None:
    orders = Orders()
    orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))

    with pytest.raises(TrainingError, match="refused here: was met before"):
        orders.on_refused("commands", delivery("commands", "1-0"), REPLAYED)


def test_a_flood_of_junk_makes_no_rank_forget_what_else_it_refused() -> None:
    orders = Orders()
    orders.on_refused("commands", delivery("commands", "1-0"), REPLAYED)
    for number in range(2 * MOST_REFUSED):
        orders.on_refused("commands", delivery("commands", f"2-{number}"), JUNK)

    with pytest.raises(TrainingError, match="refused here: was met before"):
        orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))


def test_an_abort_settles_itself_and_its_proposal() -> None:
    orders = Orders()
    orders.on_proposal(pb.BarrierProposal(round=1, roster_generation=1), delivery("decisions", "1-0"))

    messages, done = orders.on_abort(pb.BarrierAbort(round=1, roster_generation=1), delivery("decisions", "2-0"))

    assert messages[0].HasField("abort")
    assert {d.entry_id for d in done} == {"1-0", "2-0"}


def test_a_heartbeat_says_what_was_met_also_by_the_trainer_under_an_earlier_runtime() -> None:
    orders, beat = Orders(), pb.Heartbeat(incarnation=7, round_applied=900, round_met=1_001)
    orders.on_proposal(pb.BarrierProposal(round=3, roster_generation=2, lease_token=5), delivery("decisions", "1-0"))

    orders.stamp(beat)

    assert (beat.lease_token, beat.roster_generation, beat.round_met) == (5, 2, 1_001)
    assert (orders.incarnation, orders.round_applied) == (7, 900)


def test_a_thousand_commands_are_held_and_more_only_while_a_commit_waits_for_one_of_them() -> None:
    orders = Orders()
    for number in range(1, MOST_HELD + 1):
        orders.on_command("commands", *command(f"{number}-0"))
    full = orders.has_room("commands")

    orders.on_commit(commit(1, "5000-0", position="5000-0"), delivery("decisions", "9-0"))
    waited_for = orders.has_room("commands")
    said, _ = orders.on_command("commands", *command("5000-0"))

    assert (full, waited_for, orders.has_room("optimizer")) == (False, True, True)
    assert kinds(said) == ["commit"]
    assert len(orders.on_applied(pb.RoundApplied(round=1))) == MOST_HELD + 2
    assert orders.has_room("commands")


def test_of_another_log_no_more_is_read_while_a_commit_waits() -> None:
    orders = Orders()
    for number in range(1, MOST_HELD + 1):
        orders.on_command("commands", *command(f"{number}-0"))
    waits = commit(1, "5000-0")
    waits.commands[0].stream = "optimizer"
    waits.digest = barrier_digest(9, waits.commands, [])

    orders.on_commit(waits, delivery("decisions", "9-0"))

    assert [ref.stream for ref in orders.awaited()] == ["optimizer"]
    assert (orders.has_room("commands"), orders.has_room("optimizer")) == (False, True)


def test_that_a_rank_was_not_asked_is_forgotten_once_its_round_is_decided() -> None:
    orders = Orders(past=(9, 0), worker="worker-0")
    left_out = pb.BarrierProposal(round=4, roster=["worker-1"])

    orders.is_past(left_out, delivery("decisions", "9-0"))
    asked = orders.was_asked(4)
    orders.is_past(pb.BarrierAbort(round=4), delivery("decisions", "8-0"))

    assert (asked, orders.was_asked(4)) == (False, True)


def test_what_is_past_is_so_by_its_leader_and_not_by_one_that_was_replaced() -> None:
    orders = Orders(past=(9, 0))
    orders.is_past(pb.BarrierProposal(round=3, lease_token=2), delivery("decisions", "7-0"))
    orders.is_past(pb.BarrierProposal(round=9, lease_token=1), delivery("decisions", "8-0"))
    decided = commit(3)
    decided.lease_token = 2

    assert orders.is_past(decided, delivery("decisions", "10-0"))
    assert not orders.is_past(pb.BarrierProposal(round=9, lease_token=2), delivery("decisions", "11-0"))


def test_a_leader_that_counts_anew_is_heard() -> None:
    orders = Orders(past=(9, 0))
    orders.is_past(pb.BarrierProposal(round=40, lease_token=1), delivery("decisions", "8-0"))

    assert not orders.is_past(pb.BarrierProposal(round=1, lease_token=2), delivery("decisions", "10-0"))


def test_a_log_that_begins_anew_by_a_clock_behind_is_not_past() -> None:
    """Its entries lie below the one that was the newest when the trainer began; what was past then, is so still."""
    orders = Orders(past=(9, 0))
    orders.is_past(pb.BarrierProposal(round=3, lease_token=2), delivery("decisions", "8-0"))
    orders.past_is_known = True

    assert orders.is_past(pb.BarrierProposal(round=3, lease_token=2), delivery("decisions", "4-0"))
    assert orders.is_past(pb.BarrierProposal(round=9, lease_token=1), delivery("decisions", "5-0"))
    assert not orders.is_past(pb.BarrierProposal(round=4, lease_token=2), delivery("decisions", "6-0"))
    assert not orders.is_past(pb.BarrierProposal(round=1, lease_token=3), delivery("decisions", "7-0"))


def test_a_commit_of_what_was_carried_out_goes_on_once_the_trainer_has_said_so() -> None:
    orders = Orders()
    orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0")._replace(attempts=2))
    [ref] = orders.awaited()

    orders.round_applied = 1
    said, _ = orders.on_missing(ref)

    assert kinds(said) == ["commit"]


def test_a_commit_of_what_was_carried_out_waits_for_what_is_pending_with_it() -> None:
    orders = Orders(round_applied=1)
    orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0")._replace(attempts=2))
    orders.on_command("commands", *command("1-0"))

    settled = orders.on_applied(pb.RoundApplied(round=1))

    assert [each.entry_id for each in settled] == ["9-0", "1-0"]


def test_a_commit_that_is_said_once_more_to_another_runtime_is_void() -> None:
    orders = Orders(round_applied=1)

    said, done = orders.on_commit(commit(1, "1-0"), delivery("decisions", "9-0"))

    assert (said, [each.entry_id for each in done]) == ([], ["9-0"])
