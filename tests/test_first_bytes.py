"""What anybody's code has said is cut to what a message may carry, between two letters, and always is UTF-8."""

from __future__ import annotations

import pytest

from esper.errors import RefusedError, first_bytes
from esper.leyline import contracts as pb
from esper.tamiyo.outcome import refuse


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("gradient", 8, "gradient"),
        ("gradient", 4, "grad"),
        ("10 µs", 4, "10 "),  # two bytes a sign
        ("10 µs", 5, "10 µ"),
        ("\udc80 of a file's name", 4, "? of"),
    ],
)
def test_a_text_is_cut_between_two_letters(text: str, most: int, cut: str) -> None:
    assert first_bytes(text, most) == cut


def test_a_refusal_with_the_name_of_a_file_that_is_no_utf_8_is_told() -> None:
    receipt = pb.CommandReceipt()

    refuse(receipt, RefusedError(pb.ReasonCode.REASON_NOT_SUPPORTED, "model-\udcff.pt is not there"))

    assert receipt.detail == "model-?.pt is not there"
