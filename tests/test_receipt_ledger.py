"""Which command an answer belongs to: by its entry and its id, whichever of the two is known first."""

from __future__ import annotations

import asyncio
import time

import pytest

from esper.client import Controller
from esper.errors import CommandFailedError, UnansweredError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.runtime.watching.receipts import Ledger
from tests.scripted import ScriptedRun, accepted, rejected

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


def test_a_failure_tells_that_any_rank_has_ended_the_seed() -> None:
    gate, culled = pb.ReasonCode.REASON_GATE_FAILED, pb.SeedLifecycleStage.SEED_STAGE_CULLED
    ledger = Ledger()
    answers = ledger.claim("c1", ENTRY)
    for worker, stage in (("a", pb.SeedLifecycleStage.SEED_STAGE_BLENDING), ("b", culled)):
        failure = pb.CommandReceipt(command_id="c1", entry_id=ENTRY, worker=worker, stage=stage, reason=gate)
        failure.status = pb.ReceiptStatus.RECEIPT_FAILED
        ledger.note(failure, Role.WORKER)
    ledger.note(accepted("c1", ENTRY, step=7), Role.COORDINATOR)

    with pytest.raises(CommandFailedError, match="said by a") as caught:
        answers.applied()

    assert caught.value.ended_the_seed


@pytest.mark.parametrize(("at", "told"), [("1699999999999-7", ""), (ENTRY, "no key"), ("1700000000001-0", "no key")])
def test_an_answer_that_does_not_open_counts_where_it_came_behind_the_command(at: str, told: str) -> None:
    ledger = Ledger()
    assert ledger.unopened_since(ENTRY) == ""

    ledger.unopened(at, "no key")

    assert ledger.unopened_since(ENTRY) == told


async def test_answers_under_keys_that_it_does_not_hold_are_named(run: ScriptedRun, controller: Controller) -> None:
    run.master = MasterKeyring.new(time.time_ns())  # of which the coordinator seals
    key_id = f"{run.master.derive(run.run_id, [Role.COORDINATOR]).validities[0].key_id:08x}"
    receipt = await controller.pause()
    await run.answer(rejected("", receipt.entry_id, pb.ReasonCode.REASON_UNKNOWN_KEY, "not held"))
    while not controller._ledger.unopened_since(receipt.entry_id):
        await asyncio.sleep(0)

    with pytest.raises(UnansweredError) as caught:
        await receipt.applied(timeout_s=0.05)

    why = f"key {key_id} for receipt sealed by coordinator is not held"
    assert caught.value.unopened == why
    assert f"from coordinator; one came that can't be opened, as {why}: expected a keyring" in str(caught.value)
