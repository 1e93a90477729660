"""Which command an answer belongs to: by its entry and its id, whichever of the two is known first."""

from __future__ import annotations

import pytest

from esper.errors import CommandFailedError
from esper.leyline import contracts as pb
from esper.leyline.kinds import Role
from esper.runtime.receipts import Ledger
from tests.scripted import accepted, rejected

ENTRY = "1700000000000-0"
STALE = pb.ReasonCode.REASON_STALE


@pytest.mark.parametrize("answered_first", [False, True])
def test_commands_of_one_millisecond_on_two_streams_have_their_own_answers(answered_first: bool) -> None:
    ledger = Ledger()
    claims = [] if answered_first else [ledger.claim("c1", ENTRY), ledger.claim("c2", ENTRY)]
    ledger.note(accepted("c1", ENTRY, step=7), Role.COORDINATOR)
    ledger.note(accepted("c2", ENTRY, step=9), Role.COORDINATOR)

    first, second = claims or [ledger.claim("c1", ENTRY), ledger.claim("c2", ENTRY)]

    assert [first.verdict and first.verdict.step, second.verdict and second.verdict.step] == [7, 9]


@pytest.mark.parametrize("answered_first", [False, True])
def test_the_refusal_of_an_envelope_names_its_entry_alone(answered_first: bool) -> None:
    ledger = Ledger()
    claims = [] if answered_first else [ledger.claim("c1", ENTRY)]
    ledger.note(rejected("", ENTRY, STALE, "old"), Role.COORDINATOR)

    [claimed] = claims or [ledger.claim("c1", ENTRY)]

    with pytest.raises(CommandFailedError, match="old"):
        claimed.accepted()
