"""What was done to a log after the run is found, each with its entry; an untouched one is found sound."""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from esper.examples.hostile import ISSUED_AT_BYTE, SEAL_BYTES
from esper.leyline import contracts as pb
from esper.leyline.archive import Entry
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.runtime.history.audit import Audit, audit
from esper.runtime.history.logbook import read_file
from tests.altered import altered
from tests.log_kit import ADOPT, GERMINATE, NOW_MS, WORKERS, Writer, commit, toy


def kinds(result: Audit) -> set[str]:
    return {finding.kind for finding in result.findings}


def test_an_untouched_log_is_sound(tmp_path: Path) -> None:
    run = toy()
    result = audit(read_file(run.save(tmp_path / "run.jsonl")), run.keyring)

    assert (result.findings, result.notes) == ([], [])
    assert (result.num_entries, result.num_signatures, result.seals_checked) == (16, 1, True)


@pytest.mark.parametrize("position", range(16))
def test_a_flipped_bit_is_found_in_whichever_entry(position: int) -> None:
    run = toy()
    entry = [*run.book.entries][position]
    at = run.book.streams[entry.stream].index(entry)
    sealed = bytearray(entry.sealed)
    sealed[len(sealed) // 2] ^= 4
    run.book.streams[entry.stream][at] = entry._replace(sealed=bytes(sealed))

    findings = audit(run.book, run.keyring).findings

    assert (entry.stream, entry.entry_id) in {(each.stream, each.entry_id) for each in findings}


def remove(lines: list[bytes]) -> None:
    del lines[3]


def swap(lines: list[bytes]) -> None:
    lines[3], lines[4] = lines[4], lines[3]


def truncate(lines: list[bytes]) -> None:
    lines[:] = [*lines[:-3], lines[-3][:40]]


def cut_at_a_line(lines: list[bytes]) -> None:
    del lines[-2:]


def cut_at_both_ends(lines: list[bytes]) -> None:
    del lines[0], lines[-1]


def empty(lines: list[bytes]) -> None:
    lines.clear()


def add(lines: list[bytes]) -> None:
    lines.append(lines[2])


def spoil(lines: list[bytes]) -> None:
    lines[2] = b"not a line\n"


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (remove, "gap"),
        (remove, "unreadable"),
        (swap, "order"),
        (truncate, "unreadable"),
        (cut_at_a_line, "unreadable"),
        (cut_at_both_ends, "unreadable"),
        (empty, "unreadable"),
        (add, "unreadable"),
        (spoil, "unreadable"),
    ],
)
def test_a_file_that_was_changed_is_found_out(tmp_path: Path, damage: Callable[[list[bytes]], None], kind: str) -> None:
    run = toy()
    path = run.save(tmp_path / "run.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    damage(lines)
    path.write_bytes(b"".join(lines))

    assert kind in kinds(audit(read_file(path), run.keyring))


def test_an_entry_that_is_removed_with_the_last_line_put_right_leaves_a_gap(tmp_path: Path) -> None:
    run = toy()
    del run.book.streams["decisions"][0]

    findings = audit(read_file(run.save(tmp_path / "run.jsonl")), run.keyring).findings

    assert {each.kind for each in findings} == {"gap", "decision", "round"}
    assert {each.entry_id for each in findings if each.kind == "gap"} == {run.book.streams["decisions"][0].entry_id}


def test_a_forged_commit_is_found_by_its_seal_and_without_keys_by_what_it_names() -> None:
    run, stranger = toy(), Writer(master=MasterKeyring.new(NOW_MS * 1_000_000))
    entry = run.book.streams["commands"][0]
    forged = stranger.say("decisions", Role.COORDINATOR, "coordinator", commit(3, entry, "s0-1", 40))
    run.book.streams["decisions"].append(forged._replace(entry_id=f"{NOW_MS + 99}-0"))

    assert "unknown_key" in kinds(audit(run.book, run.keyring))
    assert kinds(audit(run.book, None)) == {"decision", "receipt"}


def test_a_commit_by_a_holder_of_the_key_that_does_not_cover_what_it_names_is_found() -> None:
    run = toy()
    lie = commit(3, run.book.streams["commands"][0], "another", 40)
    lie.commands[0].envelope_digest = b"x" * 32
    run.say(
        "decisions",
        Role.COORDINATOR,
        "coordinator",
        pb.BarrierProposal(version=1, round=3, roster_generation=1, roster=WORKERS),
    )
    entry = run.say("decisions", Role.COORDINATOR, "coordinator", lie)

    found = [each for each in audit(run.book, run.keyring).findings if each.entry_id == entry.entry_id]

    assert {each.kind for each in found} == {"digest", "commit", "receipt"}


def test_a_second_decision_of_a_round_is_found() -> None:
    run = toy()
    second = pb.BarrierAbort(version=1, round=2, roster_generation=1)
    entry = run.say("decisions", Role.COORDINATOR, "coordinator", second)

    assert [(each.entry_id, each.kind) for each in audit(run.book, run.keyring).findings] == [
        (entry.entry_id, "decision")
    ]


def test_commands_of_one_millisecond_on_two_streams_are_sound_each_in_its_round() -> None:
    run = Writer()
    asked = run.say("commands", Role.CONTROLLER, "controller", GERMINATE)
    adopted = Entry("optimizer", asked.entry_id, run.sealer(Role.OPTIMIZER, "controller").seal(ADOPT))
    run.book.streams["optimizer"].append(adopted)
    run.decide(1, asked, GERMINATE.command_id, 10)
    run.decide(2, adopted, ADOPT.command_id, 30)

    assert audit(run.book, run.keyring).findings == []


def test_an_entry_that_is_there_twice_is_a_replay_unless_it_was_refused_as_one() -> None:
    run = toy()
    first = run.book.streams["commands"][0]
    again = Entry("commands", f"{NOW_MS + 50}-0", first.sealed)
    run.book.streams["commands"].append(again)
    assert [(each.entry_id, each.kind) for each in audit(run.book, run.keyring).findings] == [
        (again.entry_id, "replayed")
    ]

    rejected = pb.CommandReceipt(
        version=1,
        entry_id=again.entry_id,
        status=pb.ReceiptStatus.RECEIPT_REJECTED,
        reason=pb.ReasonCode.REASON_REPLAYED,
        worker="coordinator",
    )
    run.say("receipts", Role.COORDINATOR, "coordinator", rejected)
    result = audit(run.book, run.keyring)
    assert result.findings == []
    assert [each.kind for each in result.notes] == ["replayed"]


def refused_command(run: Writer, reason: pb.ReasonCode, sealed: bytes, entry_id: str = "") -> Entry:
    """A command that came and was answered with this."""
    entry = Entry("commands", entry_id or run.book.streams["receipts"][-1].entry_id, sealed)
    run.book.streams["commands"].append(entry)
    rejected = pb.CommandReceipt(
        version=1, entry_id=entry.entry_id, status=pb.ReceiptStatus.RECEIPT_REJECTED, reason=reason
    )
    rejected.worker = "coordinator"
    run.say("receipts", Role.COORDINATOR, "coordinator", rejected)
    return entry


def test_a_refused_repeat_does_not_stand_in_for_the_entry_that_it_repeats() -> None:
    """Nothing else names it: it was refused as well, behind its deadline."""
    run = toy()
    sealed = run.sealer(Role.CONTROLLER, "controller").seal(GERMINATE)
    late = refused_command(run, pb.ReasonCode.REASON_PAST_DEADLINE, sealed)
    run.pass_ms(100)
    again = [refused_command(run, pb.ReasonCode.REASON_REPLAYED, sealed) for _ in range(2)]
    before = audit(run.book, run.keyring)

    run.book.streams["commands"].remove(late)
    after = audit(run.book, run.keyring)

    assert before.findings == []
    assert [(each.entry_id, each.kind) for each in after.findings] == [(each.entry_id, "gap") for each in again]


def test_a_command_that_was_refused_for_what_it_says_is_no_gap_in_what_its_producer_sealed() -> None:
    run = toy()
    sealer = run.sealer(Role.CONTROLLER, "controller")
    refused_command(run, pb.ReasonCode.REASON_OUT_OF_RANGE, sealer.seal(pb.AdaptationCommand(version=1)))
    run.pass_ms(100)
    run.say("commands", Role.CONTROLLER, "controller", GERMINATE)

    result = audit(run.book, run.keyring)

    assert (result.findings, [each.kind for each in result.notes]) == ([], ["out_of_range"])


def test_what_came_behind_its_deadline_is_not_held_to_have_been_looked_at_further() -> None:
    run = toy()
    refused_command(run, pb.ReasonCode.REASON_PAST_DEADLINE, run.book.streams["commands"][0].sealed)

    result = audit(run.book, run.keyring)

    assert (result.findings, [each.kind for each in result.notes]) == ([], ["replayed"])


def test_a_command_out_of_range_that_is_there_twice_was_refused_the_second_time_as_a_replay() -> None:
    run = toy()
    sealed = run.sealer(Role.CONTROLLER, "controller").seal(pb.AdaptationCommand(version=1))
    refused_command(run, pb.ReasonCode.REASON_OUT_OF_RANGE, sealed)
    run.pass_ms(100)
    refused_command(run, pb.ReasonCode.REASON_REPLAYED, sealed)

    result = audit(run.book, run.keyring)

    assert (result.findings, [each.kind for each in result.notes]) == ([], ["out_of_range", "out_of_range"])


def test_a_command_out_of_range_of_a_retired_key_is_a_note_also_for_who_has_no_key() -> None:
    run = toy()
    sealed = run.sealer(Role.CONTROLLER, "controller").seal(pb.AdaptationCommand(version=1))
    refused_command(run, pb.ReasonCode.REASON_UNKNOWN_KEY, sealed)

    result = audit(run.book, None)

    assert (result.findings, {each.kind for each in result.notes}) == ([], {"out_of_range"})


def test_a_refused_command_whose_bytes_were_changed_since_is_found_unless_its_seal_was_what_was_refused() -> None:
    found = {}
    for reason in (pb.ReasonCode.REASON_STALE, pb.ReasonCode.REASON_UNKNOWN_KEY):
        run = toy()
        refused_command(run, reason, altered(run.sealer(Role.CONTROLLER, "controller").seal(GERMINATE)))
        found[reason] = kinds(audit(run.book, run.keyring))

    assert found == {pb.ReasonCode.REASON_STALE: {"bad_seal"}, pb.ReasonCode.REASON_UNKNOWN_KEY: set()}


def dated_back(run: Writer) -> bytes:
    """By a holder of the sealing key who can't sign."""
    keys = run.master.derive(run.book.run_id, [Role.CONTROLLER])
    sealed = bytearray(run.sealer(Role.CONTROLLER, "hostile").seal(GERMINATE))
    struct.pack_into(">Q", sealed, ISSUED_AT_BYTE, (NOW_MS - 600_000) * 1_000_000)
    body = bytes(sealed[:-SEAL_BYTES])
    return body + hmac.digest(keys.seal_key(Domain.COMMAND, Role.CONTROLLER, NOW_MS * 1_000_000)[1], body, "sha256")


def test_a_signature_that_does_not_hold_is_found_unless_the_command_was_refused() -> None:
    """The second entry of a millisecond may be as old as its seal says: clocks are set back."""
    run, refused = toy(), toy()
    entry_id = run.book.streams["commands"][-1].entry_id[:-1] + "1"
    run.book.streams["commands"].append(Entry("commands", entry_id, dated_back(run)))
    refused_command(refused, pb.ReasonCode.REASON_STALE, dated_back(refused), entry_id)

    assert kinds(audit(run.book, run.keyring)) == {"signature"}
    result = audit(refused.book, refused.keyring)
    assert (result.findings, [each.kind for each in result.notes]) == ([], ["signature"])


def test_a_log_is_sound_whose_ids_stood_still_while_the_clock_came_back() -> None:
    run = toy()
    newest = run.book.streams["commands"][-1].entry_id.partition("-")[0]
    run.pass_ms(-3_600_000)
    sealed = run.sealer(Role.CONTROLLER, "controller").seal(GERMINATE)
    run.book.streams["commands"].append(Entry("commands", f"{newest}-1", sealed))

    assert audit(run.book, run.keyring).findings == []
    assert audit(run.book, None).findings == []
