"""A log whose last line was put right is found out, too, and what one role says under the seal of another."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.archive import LogTrailer, encode_line
from esper.leyline.kinds import Role
from esper.runtime.history.audit import audit
from esper.runtime.history.logbook import read_file
from tests.log_kit import began, toy

Lines = list[bytes]


def row(line: bytes, **fields: object) -> bytes:
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":")).encode() + b"\n"


def renamed(lines: Lines) -> Lines:
    return [row(lines[0], run="toy-ffffffff"), *lines[1:]]


def of_other_keys(lines: Lines) -> Lines:
    return [row(lines[0], keys=["deadbeef"]), *lines[1:]]


def of_no_keys(lines: Lines) -> Lines:
    return [row(lines[0], keys=[]), *lines[1:]]


def headed_twice(lines: Lines) -> Lines:
    return [renamed(lines)[0], *lines]


def headed_in_the_middle(lines: Lines) -> Lines:
    return [*lines[1:5], lines[0], *lines[5:]]


def with_more_in_a_line(lines: Lines) -> Lines:
    return [*lines[:2], row(lines[2], note="as agreed"), *lines[3:]]


def said_twice_in_a_line(lines: Lines) -> Lines:
    return [*lines[:2], lines[2].replace(b'"m":', b'"m":"AAAA","m":'), *lines[3:]]


def with_other_ends(lines: Lines) -> Lines:
    return [line.replace(b"\n", b"\r\n") for line in lines]


def put_right(lines: Lines) -> bytes:
    """With a last line that fits."""
    above = b"".join(lines)
    return above + encode_line(LogTrailer(above.count(b'"stream":'), sha256(above).hexdigest()))


FORGED: dict[Callable[[Lines], Lines], str] = {
    renamed: "the file says toy-ffffffff, and its keys are of toy-0a1b2c3d",
    of_other_keys: "the first line of the log names other keys",
    of_no_keys: "the first line of the log names other keys",
    headed_twice: "line 2 of the log: is a first line",
    headed_in_the_middle: "line 5 of the log: is a first line",
    with_more_in_a_line: "line 3 of the log: says more than an exported one",
    said_twice_in_a_line: "line 3 of the log: says more than an exported one",
    with_other_ends: "line 1 of the log: says more than an exported one",
}


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_file_that_was_changed_without_a_key_and_put_right_is_found_out(
    tmp_path: Path, forge: Callable[[Lines], Lines]
) -> None:
    run = toy()
    path = run.save(tmp_path / "run.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)[:-1]
    assert put_right(lines) == path.read_bytes()

    path.write_bytes(put_right(forge(lines)))

    assert any(FORGED[forge] in each.detail for each in audit(read_file(path), run.keyring).findings)


def receipt(status: pb.ReceiptStatus, worker: str) -> pb.CommandReceipt:
    return pb.CommandReceipt(
        version=1, command_id="f" * 32, entry_id="1700000000003-0", status=status, worker=worker, step=10, round=1
    )


def record(worker: str) -> pb.RunRecord:
    return pb.RunRecord(version=1, worker=worker, incarnation=7, world_size=2, began=began())


@pytest.mark.parametrize(
    ("role", "producer", "message"),
    [
        (Role.COORDINATOR, "worker-0", record("worker-0")),
        (Role.COORDINATOR, "coordinator", receipt(pb.ReceiptStatus.RECEIPT_APPLIED, "worker-0")),
        (Role.WORKER, "coordinator", receipt(pb.ReceiptStatus.RECEIPT_ACCEPTED, "coordinator")),
        (Role.WORKER, "coordinator", receipt(pb.ReceiptStatus.RECEIPT_REJECTED, "coordinator")),
        (Role.WORKER, "worker-0", receipt(pb.ReceiptStatus.RECEIPT_APPLIED, "worker-1")),
        (Role.WORKER, "worker-0", record("worker-1")),
    ],
)
def test_what_one_says_under_the_seal_of_another_role_or_in_anothers_name_is_found(
    role: Role, producer: str, message: Message
) -> None:
    run = toy()
    entry = run.say("receipts", role, producer, message)

    found = [each for each in audit(run.book, run.keyring).findings if each.kind == "role"]

    assert [each.entry_id for each in found] == [entry.entry_id]
    assert found[0].detail.endswith(f"sealed by {role.value} {producer}")
