"""What is pruned stays at zero where a script puts other parameters in the place of the masked ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from esper.kasmina.pruning.config import KasminaCheckpointPruningConfig
from esper.kasmina.pruning.pruner import Pruning
from esper.kasmina.pruning.units import HEAD, WEIGHT
from tests.pruning_kit import APPLIED, mask, response


def test_a_weight_that_is_normed_since_is_not_computed_once_more() -> None:
    layer = nn.Linear(4, 3)
    pruning = Pruning(nn.Sequential(layer), KasminaCheckpointPruningConfig(importance_every=0))
    assert pruning.apply(response(mask("0.weight", [1], 3)), 1).status == APPLIED
    spectral_norm(layer, n_power_iterations=1)
    vectors = {name: each.clone() for name, each in layer.named_buffers()}  # each look at the weight moves them

    with torch.no_grad():
        layer.get_parameter("parametrizations.weight.original").add_(torch.eye(3, 4))
    pruning.masks.hold()

    assert all(torch.equal(each, vectors[name]) for name, each in layer.named_buffers())


def test_beside_a_weight_that_is_normed_since_others_are_held() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(3, 2)
    pruning = Pruning(nn.Sequential(first, second), KasminaCheckpointPruningConfig(importance_every=0))
    assert pruning.apply(response(mask("0.weight", [1], 3), mask("1.weight", [0], 2)), 1).status == APPLIED
    weight_norm(first)
    second.weight = nn.Parameter(torch.ones(2, 3))

    pruning.masks.hold()

    assert second.weight.tolist() == [[0.0] * 3, [1.0] * 3]


@pytest.mark.parametrize("moved", ["assigned", "cast"])
def test_other_parameters_in_their_place_are_held_at_zero_too(moved: str) -> None:
    first, second = nn.Linear(4, 3), nn.Linear(3, 2)
    model = nn.Sequential(first, second)
    settings = KasminaCheckpointPruningConfig(importance_every=0, weights=("1.weight",))
    pruning = Pruning(model, settings)
    masks = mask("0.weight", [1], 3), mask("1.weight", [0, 4], 6, WEIGHT)
    assert pruning.apply(response(*masks), 1).status == APPLIED
    if moved == "assigned":
        model.load_state_dict({name: each + 1.0 for name, each in model.state_dict().items()}, assign=True)
    else:
        model.double()
        with torch.no_grad():
            torch._foreach_add_([first.weight, second.weight], 1.0)

    pruning.masks.hold()
    model.requires_grad_()
    torch.autograd.backward(model(torch.ones(2, 4, dtype=first.weight.dtype)).square().sum())

    assert not first.weight[1].any() and first.weight[0].all()
    single = second.weight.flatten()
    assert not single[[0, 4]].any() and single[1:4].all() and second.weight.grad is not None
    assert not second.weight.grad.flatten()[[0, 4]].any()  # they were gated, too, by the new parameter's own hook


def test_single_weights_of_a_frozen_parameter_are_pruned_and_have_no_gradient_once_it_learns() -> None:
    layer = nn.Linear(4, 3).requires_grad_(False)
    model = nn.Sequential(nn.Linear(4, 4), layer)
    pruning = Pruning(model, KasminaCheckpointPruningConfig(importance_every=0, weights=("1.weight",)))

    outcome = pruning.apply(response(mask("1.weight", [0, 5], 12, WEIGHT)), 1)
    layer.requires_grad_()
    pruning.after_optimizer_step()
    torch.autograd.backward(model(torch.ones(2, 4)).square().sum())

    assert outcome.status == APPLIED and not layer.weight.flatten()[[0, 5]].any()
    assert layer.weight.grad is not None and not layer.weight.grad.flatten()[[0, 5]].any()
    assert layer.weight.grad.flatten()[1:5].all()


def test_a_pruned_attention_is_called_as_a_function_of_other_weights() -> None:
    attention = nn.MultiheadAttention(4, 2)
    pruning = Pruning(attention, KasminaCheckpointPruningConfig(importance_every=0))
    outcome = pruning.apply(response(mask("out_proj.weight", [1], 2, HEAD, 1)), 1)
    given = {name: each.detach().clone() for name, each in attention.named_parameters()}
    x = torch.ones(3, 1, 4)

    found = torch.func.functional_call(attention, given, (x, x, x))[0]

    assert outcome.status == APPLIED and torch.equal(found, attention(x, x, x)[0])
