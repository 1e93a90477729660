"""A pruning command goes from the coordinator's judge through steering to the models of two ranks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from esper.errors import SettingError
from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.plan import plan
from esper.leyline import commands, contracts as pb
from tests.pruning_kit import APPLIED, lift, mask, response
from tests.pruning_session_kit import UNMEASURED, Ranks
from tests.seed_kit import Op, new_host, optimizer_of
from tests.session_kit import on_seed, order, train, unsteered

MEASURED = KasminaCheckpointPruningConfig(check_every=1)
ASK = commands.pruning(0, {})


def pruned_rows(layer: nn.Linear) -> list[int]:
    return [row for row in range(layer.out_features) if not layer.weight[row].any()]


def test_importance_asked_for_becomes_masks_that_both_ranks_keep() -> None:
    ranks = Ranks(pruning=MEASURED)
    ranks.train(5)

    asked = ranks.decide(ASK)
    answers = ranks.heard()
    receipts = ranks.decide(commands.pruning_masks(plan(answers, 0.5, only=["body.weight"])))
    ranks.train(10)

    assert [[receipt.status for receipt in rank] for rank in (*asked, *receipts)] == [[APPLIED]] * 4
    [answer] = answers
    assert (answer.step, answer.num_steps, answer.phase) == (6, 5, pb.PruningPhase.PRUNING_PHASE_ACTIVE)
    assert {each.parameter: len(each.taylor) for each in answer.importance} == {"body.weight": 6, "head.weight": 3}
    by_worth = sorted(
        range(6), key=next(e for e in answer.importance if e.parameter == "body.weight").taylor.__getitem__
    )
    assert [pruned_rows(host.body) for host in ranks.hosts] == [sorted(by_worth[:3])] * 2
    assert receipts[0][0].evidence["num_pruned"] == 3
    first, second = ranks.weights()
    assert all(map(torch.equal, first, second))


def test_a_gradient_that_explodes_undoes_it_on_both_ranks_and_is_told() -> None:
    ranks = Ranks(pruning=MEASURED)
    ranks.train(5)
    ranks.decide(commands.pruning_masks(response(mask("body.weight", [1, 2], 6))))
    assert [pruned_rows(host.body) for host in ranks.hosts] == [[1, 2]] * 2
    for run in ranks.runs:
        run.exchange.rows.table()

    ranks.train(1, factor=100.0)
    ranks.train(1)

    assert [pruned_rows(host.body) for host in ranks.hosts] == [[], []]
    tables = [run.exchange.rows.table() for run in ranks.runs]
    assert [[event.description for event in table.events] for table in tables if table] == [["pruning.undone"]] * 2


def test_noted_accuracy_that_falls_lifts_the_change() -> None:
    ranks = Ranks()
    for run in ranks.runs:
        run.note(accuracy=0.90)
    ranks.decide(commands.pruning_masks(response(mask("body.weight", [1], 6))))

    for run in ranks.runs:
        run.note(accuracy=0.80)
    ranks.train(9)

    assert [pruned_rows(host.body) for host in ranks.hosts] == [[], []]


def test_a_mask_that_fits_no_layer_fails_on_both_ranks_and_training_goes_on() -> None:
    ranks = Ranks()
    ranks.train(1)

    receipts = ranks.decide(commands.pruning_masks(response(mask("bodi.weight", [1], 6))))
    ranks.train(1)

    for [receipt] in receipts:
        assert (receipt.status, receipt.reason) == (
            pb.ReceiptStatus.RECEIPT_FAILED,
            pb.ReasonCode.REASON_UNKNOWN_PARAMETER,
        )
        assert "near: body.weight" in receipt.detail


def test_importance_is_refused_where_it_is_not_measured() -> None:
    ranks = Ranks()

    [[receipt], _] = ranks.decide(ASK)

    assert (receipt.reason, ranks.heard()) == (pb.ReasonCode.REASON_NOT_SUPPORTED, [])
    assert "attach(pruning=...)" in receipt.detail


def test_masks_can_be_lifted_by_command() -> None:
    ranks = Ranks()
    ranks.decide(commands.pruning_masks(response(mask("body.weight", [1], 6))))

    [[receipt], _] = ranks.decide(commands.pruning_masks(lift("second thoughts")))

    assert receipt.detail == "1 channels and heads restored: second thoughts"
    assert pruned_rows(ranks.hosts[0].body) == []


def test_a_rollback_lifts_masks_put_in_force_since_its_snapshot() -> None:
    ranks = Ranks()
    ranks.train(2)
    step = ranks.runs[0].step_number
    before = ranks.weights()
    for run in ranks.runs:
        run.status.states.take(step)
    ranks.decide(commands.pruning_masks(response(mask("body.weight", [1, 4], 6))))

    for run in ranks.runs:
        run.status.states.restore(step, run.step_number)

    for then, now in zip(before, ranks.weights(), strict=True):
        assert all(map(torch.equal, then, now))
    ranks.train(1)
    assert pruned_rows(ranks.hosts[0].body) == []


def test_what_another_optimizer_did_to_pruned_channels_is_taken_back_before_a_snapshot() -> None:
    host = new_host()
    second = torch.optim.SGD([host.body.bias], lr=0.1, momentum=0.9)
    run = unsteered(host, torch.optim.SGD([host.body.weight, *host.head.parameters()], lr=0.1))
    for _ in range(2):
        train(run, host, 1)
        second.step()
        if run.step_number == 2:
            order(run, commands.pruning_masks(response(mask("body.weight", [1], 6))))
    assert host.body.bias[1]

    step = run.step_number
    with run.step():
        run.status.states.take(step)
        before = host.body.bias.detach().clone()
    run.status.states.restore(step, run.step_number)

    assert not before[1] and before[0]
    assert torch.equal(host.body.bias, before)


def test_a_checkpoint_has_its_importance_told() -> None:
    ranks = Ranks(pruning=MEASURED)
    ranks.train(3)

    for run in ranks.runs:
        run.export_importance("step-3")

    [answer] = ranks.heard()
    assert (answer.checkpoint_id, answer.step, answer.num_steps) == ("step-3", 4, 3)


def test_importance_that_is_not_measured_is_not_told_and_the_error_names_the_setting() -> None:
    run = Ranks(pruning=UNMEASURED).runs[0]

    with pytest.raises(SettingError, match="importance_every is 0; expected at least 1"):
        run.export_importance("step-1")


def test_closing_a_session_removes_what_pruning_put_into_the_model() -> None:
    host = new_host()
    run = unsteered(host, torch.optim.SGD(host.parameters(), lr=0.1), pruning=MEASURED)
    order(run, commands.pruning_masks(response(mask("head.weight", [1], 3))))
    train(run, host, 3)
    assert run.pruning.importance.num_steps() == 3 and host.head._forward_hooks

    run.close()

    assert not host.head._forward_hooks
    assert pruned_rows(host.head) == [1]


@pytest.mark.parametrize("rests", [False, True], ids=["before", "after the site was seen"])
def test_a_seed_joins_a_masked_site_behind_its_mask_whenever_that_came(rests: bool) -> None:
    host = new_host()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "head")
    if rests:  # its slot has taken its hook off by then
        train(run, host, 3)
    assert not run.pruning.apply(response(mask("head.weight", [0], 3)), run.step_number).reason
    train(run, host, 1)
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="head", blueprint_id="norm"), on_seed(Op.SEED_OP_START_TRAINING))

    train(run, host, 2)

    shift = dict(run.executor.seeds["s0"].trainable())["shift"]
    assert shift.ne(0).tolist() == [True] * 3  # the pruned channel too: the mask is on what the host gives
