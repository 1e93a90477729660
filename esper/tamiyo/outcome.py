"""What a coordinator answers, and how a refusal is worded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias, cast

from esper.errors import RefusedError, first_bytes
from esper.leyline import contracts as pb
from esper.leyline.succession import Decision
from esper.leyline.validate.bounds import SENTENCE_BYTES

Entry: TypeAlias = tuple[str, str]
"""A stream's name and an entry id."""


@dataclass
class Outcome:
    """What follows from a message or a tick: to be published and acknowledged in one atomic call, in this order."""

    decisions: list[Decision] = field(default_factory=list)
    receipts: list[pb.CommandReceipt] = field(default_factory=list)
    done: list[Entry] = field(default_factory=list)
    evicted_alone: list[str] = field(default_factory=list)
    """Workers whose groups are to be destroyed, once their positions are on record with the abort that names them."""
    left: list[str] = field(default_factory=list)
    """Replicas that have said farewell while others go on: their groups are to be destroyed too."""


def refuse(receipt: pb.CommandReceipt, error: RefusedError) -> None:
    """Make a receipt say why, with as much of the sentence as it may carry."""
    receipt.status = pb.ReceiptStatus.RECEIPT_REJECTED
    receipt.reason = cast(pb.ReasonCode, error.reason)
    receipt.detail = first_bytes(error.detail, SENTENCE_BYTES)
