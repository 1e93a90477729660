"""What is pruned stays at zero, whatever trains the model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from tests.asked_of_torch import Operations
from tests.pruning_kit import (
    APPLIED,
    EVERYTHING,
    HEADS,
    OPTIMIZERS,
    SETTINGS,
    backward,
    images,
    mask,
    new_zoo,
    pruned_entries,
    pruned_zoo,
    response,
    train,
)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_momentum_and_decay_revive_nothing(name: str) -> None:
    model = new_zoo()
    pruning = Pruning(model, SETTINGS)
    optimizer = OPTIMIZERS[name](list(model.parameters()))
    train(model, pruning, optimizer, 1, 10)  # momentum and moments of what is pruned next
    others = model.head.weight.detach().clone()

    assert pruning.apply(EVERYTHING, 11).status == APPLIED
    for step in range(11, 31):
        train(model, pruning, optimizer, step, 1)
        assert not pruned_entries(model, lambda p: p.detach()).any()
        assert not pruned_entries(model, lambda p: p.grad).any()

    assert not torch.equal(model.head.weight, others)


def test_weights_that_come_back_by_another_way_have_no_effect() -> None:
    model, _ = pruned_zoo()
    inputs, _ = images(0)
    before = model(inputs)

    with torch.no_grad():
        for p, dim, where in [
            (model.image.weight, 0, [1, 4]),
            (model.mix.bias, 0, [0, 7]),
            (model.mix.weight, 1, [4, 5]),
            (model.attention.in_proj_weight, 0, [20, 21]),
            (model.attention.out_proj.weight, 1, [4]),
        ]:
            p.index_fill_(dim, torch.tensor(where), 3.0)

    assert torch.equal(model(inputs), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.5])
def test_what_is_pruned_is_zero_again_whatever_it_became_and_the_rest_keeps_each_bit(
    value: float, dtype: torch.dtype
) -> None:
    model = new_zoo().to(dtype)
    pruning = Pruning(model, SETTINGS)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(3.0)  # none is zero
        assert pruning.apply(EVERYTHING, 1).status == APPLIED
        model.mix.bias[1:6] = torch.tensor([float("nan"), -0.0, 1e-40, float("-inf"), 1.0])  # of what is kept
        before = {name: each.clone() for name, each in model.named_parameters()}
        for p in model.parameters():
            p.masked_fill_((p == 0) & ~p.signbit(), value)

    pruning.after_optimizer_step()

    assert not pruned_entries(model, lambda p: p.detach()).any()
    for name, p in model.named_parameters():
        assert torch.equal(p.detach().view(torch.uint8), before[name].view(torch.uint8)), name


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_pruned_complex_weights_are_zero_again_too(dtype: torch.dtype) -> None:
    layer = nn.Linear(3, 2, dtype=dtype)
    pruning = Pruning(nn.Sequential(layer), KasminaCheckpointPruningConfig(importance_every=0))
    assert pruning.apply(response(mask("0.weight", [1], 2)), 1).status == APPLIED
    kept = layer.weight[0].tolist()
    with torch.no_grad():
        layer.weight[1] = torch.full((3,), complex("nan+infj"), dtype=dtype)

    pruning.after_optimizer_step()

    assert layer.weight.tolist() == [kept, [0j] * 3]


@pytest.mark.parametrize("part", ["conjugate", "imaginary"])
def test_pruned_weights_are_zero_again_where_their_memory_is_not_what_they_stand_for(part: str) -> None:
    layer = nn.Linear(3, 2, bias=False)
    turned = torch.full((2, 3), 1.0 + 2.0j).conj()
    layer.weight = nn.Parameter(turned if part == "conjugate" else turned.imag)
    pruning = Pruning(nn.Sequential(layer), KasminaCheckpointPruningConfig(importance_every=0))
    assert pruning.apply(response(mask("0.weight", [1], 2)), 1).status == APPLIED
    with torch.no_grad():
        layer.weight[1] = 3.0

    pruning.after_optimizer_step()

    assert [bool(row.any()) for row in layer.weight] == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_what_is_pruned_is_zero_again_in_parameters_that_were_given_other_memory(dtype: torch.dtype) -> None:
    model, pruning = pruned_zoo()
    for p in model.parameters():
        p.data = p.data.add(3.0).to(dtype)

    pruning.after_optimizer_step()

    assert not pruned_entries(model, lambda p: p.detach()).any()
    assert model.head.weight.all()


def test_a_step_asks_torch_no_more_for_many_pruned_layers_than_for_one() -> None:
    asked = []
    for num in (1, 30):
        pruning = Pruning(
            nn.Sequential(*(nn.Linear(3, 3) for _ in range(num))), KasminaCheckpointPruningConfig(importance_every=0)
        )
        outcome = pruning.apply(response(*(mask(f"{at}.weight", [1], 3) for at in range(num))), 1)
        assert (outcome.status, outcome.evidence["num_pruned"]) == (APPLIED, num)

        with Operations() as operations:
            pruning.after_optimizer_step()
        asked.append(len(operations.calls))

    assert asked == [1, 1]


def test_a_weight_that_was_not_finite_when_it_was_pruned_poisons_no_gradient() -> None:
    layer = nn.Linear(3, 3)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), layer, nn.Linear(3, 2))
    pruning = Pruning(model, KasminaCheckpointPruningConfig(importance_every=0))
    with torch.no_grad():
        layer.weight[1] = float("inf")

    assert pruning.apply(response(mask("2.weight", [1], 3)), 1).status == APPLIED
    torch.autograd.backward(model(torch.ones(2, 4)).square().sum())

    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


def test_a_pruned_model_is_the_model_with_those_weights_at_zero() -> None:
    model, _ = pruned_zoo()
    bare = new_zoo()
    bare.load_state_dict(model.state_dict())
    inputs, _ = images(0)

    assert not pruned_entries(bare, lambda p: p.detach()).any()
    torch.testing.assert_close(model(inputs), bare(inputs))


def test_names_and_parameters_stay_what_they_are() -> None:
    model = new_zoo()
    names, ids = [*model.state_dict()], [id(p) for p in model.parameters()]

    pruning = Pruning(model, SETTINGS)
    pruning.apply(EVERYTHING, 1)

    assert [*model.state_dict()] == names
    assert [id(p) for p in model.parameters()] == ids


def test_the_rest_learns_as_if_the_pruned_had_never_been() -> None:
    """Gradients of what is kept are those of a model whose pruned weights are zero."""
    model, _ = pruned_zoo()
    bare = new_zoo()
    bare.load_state_dict(model.state_dict())

    backward(model, 3)
    backward(bare, 3)

    assert not pruned_entries(model, lambda p: p.grad).any()
    assert pruned_entries(bare, lambda p: p.grad).any()
    for name in ("head.weight", "line.weight"):
        mine, theirs = model.get_parameter(name).grad, bare.get_parameter(name).grad
        assert mine is not None and theirs is not None
        torch.testing.assert_close(mine[1:], theirs[1:])


def test_masks_survive_a_checkpoint() -> None:
    model, pruning = pruned_zoo()
    weights, state = model.state_dict(), pruning.state()
    later = new_zoo()
    later.load_state_dict(weights)

    resumed = Pruning(later, SETTINGS)
    resumed.load_state(state)

    optimizer = OPTIMIZERS["sgd"](list(later.parameters()))
    train(later, resumed, optimizer, 1, 5)
    assert not pruned_entries(later, lambda p: p.detach()).any()
    assert resumed.masks.num_pruned() == pruning.masks.num_pruned() == 9
    assert all(isinstance(value, Tensor) for value in state.values())


def test_closing_leaves_zeros_and_no_hook() -> None:
    model, pruning = pruned_zoo()

    pruning.close()

    assert not pruned_entries(model, lambda p: p.detach()).any()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_without_masks_training_is_that_of_the_bare_model() -> None:
    model, bare = new_zoo(), new_zoo()
    pruning = Pruning(model, KasminaCheckpointPruningConfig(heads=HEADS))
    train(model, pruning, OPTIMIZERS["adamw"](list(model.parameters())), 1, 3)
    optimizer = OPTIMIZERS["adamw"](list(bare.parameters()))
    for step in range(1, 4):
        optimizer.zero_grad()
        backward(bare, step)
        optimizer.step()

    assert all(map(torch.equal, model.parameters(), bare.parameters()))
