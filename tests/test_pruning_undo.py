"""A change that did harm is taken back: its masks lifted, its weights as they were, bit for bit."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from esper.kasmina.gates.meter import norm_of
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import WEIGHT
from esper.leyline import contracts as pb
from tests.pruning_kit import APPLIED, CHANGE, FAILED, WATCHED, Dictated, lift, mask, new_zoo, response


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return all(torch.equal(a[name].view(torch.int32), b[name].view(torch.int32)) for name in a)


def test_a_gradient_norm_of_five_medians_lifts_the_change_bit_for_bit() -> None:
    run = Dictated()
    run.step(num=3)
    run.prune()
    before = new_zoo()
    run.step(num=5)
    assert run.pruning.masks.num_pruned() == 6

    run.step(4.9)
    run.step()
    assert run.pruning.masks.num_pruned() == 6
    run.step(5.1)
    run.step()

    assert run.pruning.masks.num_pruned() == 0
    assert same(run.weights(), {name: p.detach() for name, p in before.named_parameters()})
    [event] = run.pruning.take_events()
    assert event.name == "pruning.undone"
    assert event.attributes["reason"] == "gradient norm 5.1 x its running median; at most 5"
    assert event.attributes["channels"] == "6"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in run.model.modules())


def test_what_is_met_before_the_first_channel_of_a_ramp_goes_undoes_nothing() -> None:
    run = Dictated(replace(WATCHED, schedule="cubic", ramp_steps=40, ramp_every=10))
    run.pruning.note_accuracy(0.9)
    run.step(num=3)
    run.prune()
    run.step(6.0, num=2)
    run.pruning.note_accuracy(0.5)
    run.step(num=6)
    assert (run.pruning.masks.num_pruned(), run.pruning.take_events()) == (0, [])

    run.step(num=20)
    assert run.pruning.masks.num_pruned() > 0
    run.step(6.0)
    run.step()

    assert run.pruning.masks.num_pruned() == 0
    assert [event.name for event in run.pruning.take_events()] == ["pruning.undone"]


@pytest.mark.parametrize("gradient", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_lifts_the_change(gradient: float) -> None:
    run = Dictated()
    run.prune()
    run.step(num=2)

    run.step(gradient)
    run.step()

    assert run.pruning.masks.num_pruned() == 0


def test_a_step_that_the_scaler_skips_lifts_nothing() -> None:
    run = Dictated()
    run.prune()
    run.step(num=2)
    run.optimizer.found_inf = torch.ones(())  # type: ignore[attr-defined] # as GradScaler does with a fused optimizer

    run.step(math.inf, num=5)
    run.step()
    assert run.pruning.masks.num_pruned() == 6

    del run.optimizer.found_inf  # type: ignore[attr-defined]
    run.step(6.0)  # what was skipped is no part of the median
    run.step()
    assert run.pruning.masks.num_pruned() == 0


@pytest.mark.parametrize(("after", "undone"), [(0.885, False), (0.88, False), (0.875, True), (0.95, False)])
def test_an_accuracy_more_than_two_points_below_the_last_one_lifts_the_change(after: float, undone: bool) -> None:
    run = Dictated()
    run.pruning.note_accuracy(0.9)
    run.prune()
    run.step(num=3)
    assert run.pruning.masks.num_pruned() == 6

    run.pruning.note_accuracy(after)
    run.step()

    assert (run.pruning.masks.num_pruned() == 0) is undone
    reasons = [event.attributes["reason"] for event in run.pruning.take_events()]
    assert reasons == (["accuracy 2.5 points below 0.9; at most 2"] if undone else [])


@pytest.mark.parametrize("hits", [5, 28, 54, 73])
def test_two_points_of_accuracies_in_single_precision_are_no_more_than_two(hits: int) -> None:
    before, after = (torch.tensor([hits, hits - 2]) / 100).tolist()
    run = Dictated()
    run.pruning.note_accuracy(before)
    run.prune()
    run.step(num=3)

    run.pruning.note_accuracy(after)
    run.step()

    assert run.pruning.masks.num_pruned() == 6, run.pruning.take_events()


def test_one_rank_that_sees_a_spike_undoes_it_on_all() -> None:
    """`reduce` is a mean over two ranks, the other of which has seen one."""
    spike = torch.tensor([1.0, 9.0, 0.0, 0.0], dtype=torch.float64)
    run = Dictated()
    run.pruning = Pruning(run.model, WATCHED, reduce=lambda mine: (mine + spike) / 2)
    run.prune()

    run.step()

    assert run.pruning.masks.num_pruned() == 0


@pytest.mark.parametrize(("other", "undone"), [(0.0, False), (0.02, True)])
def test_accuracies_of_ranks_are_averaged(other: float, undone: bool) -> None:
    theirs = torch.tensor([0.0, 1.0, other, 1.0], dtype=torch.float64)
    run = Dictated()
    run.pruning = Pruning(run.model, WATCHED, reduce=lambda mine: (mine + theirs) / 2)
    run.pruning.note_accuracy(0.9)
    run.prune()

    run.pruning.note_accuracy(0.87)
    run.step()

    assert (run.pruning.masks.num_pruned() == 0) is undone


def test_the_masks_before_the_change_stay() -> None:
    run = Dictated()
    run.prune(response(mask("mix.weight", [3], 8)))
    before = run.weights()
    run.prune()

    outcome = run.pruning.apply(lift("no good"), 2)

    assert (outcome.status, outcome.detail) == (APPLIED, "6 channels and heads restored: no good")
    assert same(run.weights(), before)
    assert [row for row in range(8) if not run.model.mix.weight[row].any()] == [3]
    assert run.pruning.apply(lift(), 2).status == FAILED


def test_a_ramp_is_undone_whole() -> None:
    run = Dictated(replace(WATCHED, schedule="cubic", ramp_steps=6, ramp_every=2))
    before = run.weights()
    run.prune()
    run.step(num=3)
    assert 0 < run.pruning.masks.num_pruned() < 6
    run.step(num=2)  # a channel more, of a layer whose head is pruned already
    assert run.pruning.masks.num_pruned() == 6

    assert run.pruning.apply(lift(), 6).status == APPLIED
    run.step(num=6)

    assert same(run.weights(), before)
    assert run.pruning.masks.num_pruned() == 0


def test_a_change_is_lifted_in_the_precision_that_the_model_has_by_then() -> None:
    run = Dictated(replace(WATCHED, weights=["mix.bias"]))
    before = run.weights()
    run.prune(response(mask("image.weight", [1, 4], 6), mask("mix.bias", [0, 7], 8, WEIGHT)))

    run.model.double()
    lifted = run.pruning.apply(lift("cast since"), 2)

    assert lifted.status == APPLIED
    assert all(torch.equal(each, before[name].double()) for name, each in run.weights().items())


def test_copies_are_counted_and_given_up_when_the_watch_ends() -> None:
    run = Dictated()
    run.prune(response(mask("mix.weight", [0, 7], 8)))
    positions = 2 * 2 * 8  # int64, of the weight's rows and of the bias

    assert run.pruning.kept_bytes() == 2 * 12 * 4 + 2 * 4 + positions
    run.step(num=21)

    assert run.pruning.kept_bytes() == 0
    assert run.pruning.masks.num_pruned() == 2
    assert run.pruning.apply(lift(), 22).status == FAILED


def test_three_changes_undone_in_a_row_disable_pruning_until_a_request_enables_it() -> None:
    run = Dictated()
    run.step(num=3)
    for _ in range(3):
        run.prune()
        run.step(100.0)
        run.step()

    refused = run.pruning.apply(CHANGE, run.number + 1)
    enable = pb.StructuralPruningRequest(request_id="go", phase=pb.PruningPhase.PRUNING_PHASE_ACTIVE)

    assert (refused.status, refused.reason) == (FAILED, pb.ReasonCode.REASON_BREAKER_OPEN)
    assert [event.name for event in run.pruning.take_events()] == ["pruning.undone"] * 3 + ["pruning.disabled"]
    assert run.pruning.request(enable, run.number + 1).status == APPLIED
    run.prune()


def test_masks_are_refused_where_pruning_is_not_enabled() -> None:
    model = new_zoo()
    pruning = Pruning(model, WATCHED, enabled=False)

    outcome = pruning.apply(CHANGE, 1)

    assert (outcome.status, outcome.reason) == (FAILED, pb.ReasonCode.REASON_BREAKER_OPEN)
    assert outcome.detail == "pruning is disabled; a request with ACTIVE enables it"
    assert model.image.weight[1].any()


def test_a_rollback_puts_back_the_masks_of_its_snapshot() -> None:
    run = Dictated()
    weights, kept = run.weights(), run.pruning.snapshot()
    run.prune()
    with torch.no_grad():
        for name, parameter in run.model.named_parameters():
            parameter.copy_(weights[name])

    run.pruning.restore(kept)

    assert run.pruning.masks.num_pruned() == 0
    assert same(run.weights(), weights)


@pytest.mark.parametrize("harm", ["gradient", "accuracy"])
def test_masks_that_a_rollback_puts_back_are_not_lifted_for_what_came_after_its_snapshot(harm: str) -> None:
    run = Dictated(replace(WATCHED, check_every=2))
    run.pruning.note_accuracy(0.9)
    run.prune()
    run.step(num=4)
    kept = run.pruning.snapshot()

    run.step(50.0 if harm == "gradient" else 1.0)
    run.pruning.note_accuracy(0.2 if harm == "accuracy" else 0.9)
    run.pruning.restore(kept)
    run.step(num=4)

    assert run.pruning.masks.num_pruned() == 6
    run.step(50.0)  # it is watched from here on as it was
    run.step(num=2)
    assert run.pruning.masks.num_pruned() == 0


def test_a_ramp_that_two_rollbacks_took_up_is_undone_with_the_weights_of_the_last_one() -> None:
    run = Dictated(replace(WATCHED, schedule="cubic", ramp_steps=8, ramp_every=2))
    run.prune()
    run.step(num=2)
    kept = run.pruning.snapshot()
    for factor in (2.0, 3.0):
        run.pruning.restore(kept)
        weight = run.model.get_parameter("image.weight")
        with torch.no_grad():
            weight[4] = new_zoo().image.weight[4] * factor
        before = run.weights()
        run.step(num=6)
    assert run.pruning.masks.num_pruned() == 6

    run.pruning.apply(lift(), run.number + 1)

    assert torch.equal(run.weights()["image.weight"][4], before["image.weight"][4])


def test_a_host_with_sparse_gradients_is_watched_by_the_norm_of_all_of_them() -> None:
    words, linear = torch.nn.Embedding(5, 4, sparse=True), torch.nn.Linear(4, 3)
    model = torch.nn.Sequential(words, linear)
    pruning = Pruning(model, replace(WATCHED, heads={}))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    assert pruning.apply(response(mask("1.weight", [1], 3)), 1).status == APPLIED

    for number in (1, 2):
        pruning.begin_step(number)
        torch.autograd.backward(model(torch.tensor([0, 0, 2])).square().sum())
        pruning.before_optimizer_step(optimizer)
        optimizer.step()
        pruning.after_optimizer_step()

    found = [each.grad for each in model.parameters() if each.grad is not None]
    assert found[0].is_sparse
    expected = torch.stack([each.to_dense().norm() for each in found]).norm()
    torch.testing.assert_close(norm_of(found), expected)
