"""Frames of the link come out as they went in, however the bytes were cut."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.frames import FrameDecoder, encode, in_parts

MESSAGES = [
    pb.ToTrainer(ready=pb.RuntimeReady(run_id="digits-0a1b2c3d")),
    pb.ToTrainer(),
    pb.ToTrainer(proposal=pb.BarrierProposal(version=1, round=3, roster=["worker-0", "worker-1"])),
    pb.ToTrainer(failed=pb.RuntimeFailed(sentence="x" * 300)),
]
STREAM = b"".join(map(encode, MESSAGES))


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_messages_come_out_whole_and_in_order_however_the_bytes_are_cut(cuts: list[int]) -> None:
    decoder, edges = FrameDecoder(pb.ToTrainer), [0, *sorted(cuts), len(STREAM)]

    met = [message for start, end in pairwise(edges) for message in decoder.feed(STREAM[start:end])]

    assert met == MESSAGES


def test_a_frame_is_a_length_in_four_bytes_and_a_message() -> None:
    frame = encode(MESSAGES[0])

    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
    assert pb.ToTrainer.FromString(frame[4:]) == MESSAGES[0]


def test_a_frame_over_sixteen_mebibytes_is_refused_before_it_is_read() -> None:
    decoder = FrameDecoder(pb.ToTrainer)

    with pytest.raises(RefusedError) as refused:
        decoder.feed(struct.pack(">I", (16 << 20) + 1))

    assert refused.value.reason == pb.ReasonCode.REASON_OVERSIZE


def test_a_frame_over_sixteen_mebibytes_is_not_made() -> None:
    with pytest.raises(RefusedError, match="at most 16777216"):
        encode(pb.ToTrainer(failed=pb.RuntimeFailed(sentence="x" * (16 << 20))))


def test_a_frame_that_is_no_message_is_malformed() -> None:
    with pytest.raises(RefusedError) as refused:
        FrameDecoder(pb.ToRuntime).feed(struct.pack(">I", 2) + b"\xff\xff")

    assert refused.value.reason == pb.ReasonCode.REASON_MALFORMED


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=40), max_size=20), st.integers(1, 100))
def test_parts_of_many_fields_hold_all_of_them_once_and_fit(fields: dict[str, bytes], most_bytes: int) -> None:
    parts = list(in_parts(fields, most_bytes))

    assert [item for part in parts for item in part.items()] == list(fields.items())
    assert all(parts)
    assert all(len(part) == 1 or sum(len(n) + len(v) for n, v in part.items()) <= most_bytes for part in parts)
