"""Blueprints are residuals that begin at zero, with checked parameters and a digest."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from esper.errors import RefusedError
from esper.kernels.blueprints import BLUEPRINTS
from esper.kernels.lora import Lora
from esper.leyline import contracts as pb

SHAPES = [((5, 8), (5, 6)), ((5, 7, 8), (5, 7, 6)), ((2, 8, 4, 4), (2, 6, 4, 4)), ((2, 8, 4, 4), (2, 6, 2, 2))]


@pytest.mark.parametrize("blueprint_id", ["lora", "mlp"])
@pytest.mark.parametrize(("input_shape", "output_shape"), SHAPES)
def test_a_new_seed_adds_zeros_in_the_shape_of_the_output(
    blueprint_id: str, input_shape: tuple[int, ...], output_shape: tuple[int, ...]
) -> None:
    x, h = torch.randn(input_shape), torch.randn(output_shape)
    module = BLUEPRINTS[blueprint_id].build(nn.Identity(), x.shape, h.shape, {})

    delta = module(x, h)
    torch.autograd.backward(delta.sum())

    assert delta.shape == h.shape
    assert not delta.any()
    assert any(p.grad is not None and p.grad.any() for p in module.parameters())


def test_a_folded_lora_is_the_linear_plus_its_delta() -> None:
    linear, seed = nn.Linear(8, 6), Lora(8, 6, 3)
    nn.init.normal_(seed.up.weight)
    x = torch.randn(5, 8)
    expected = linear(x).double() + 0.25 * (x.double() @ seed.down.weight.double().T @ seed.up.weight.double().T)

    seed.absorb(0.25)

    assert seed.fold_into(linear)
    torch.testing.assert_close(linear(x).double(), expected, rtol=1e-4, atol=1e-5)


def test_a_lora_folds_into_nothing_but_a_plain_linear() -> None:
    class Odd(nn.Linear):
        pass

    assert not Lora(8, 6, 3).fold_into(Odd(8, 6))
    assert not Lora(8, 6, 3).fold_into(nn.Linear(6, 8))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"rank": 0.0}, pb.ReasonCode.REASON_OUT_OF_RANGE),
        ({"rank": 2.5}, pb.ReasonCode.REASON_OUT_OF_RANGE),
        ({"rank": float("nan")}, pb.ReasonCode.REASON_OUT_OF_RANGE),
        ({"width": 3.0}, pb.ReasonCode.REASON_UNKNOWN_PARAMETER),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(given: dict[str, float], reason: int) -> None:
    with pytest.raises(RefusedError) as caught:
        BLUEPRINTS["lora"].resolve(given)

    assert caught.value.reason == reason


def test_a_manifest_names_the_parameters_and_the_code() -> None:
    lora, mlp = (BLUEPRINTS[name].manifest() for name in ("lora", "mlp"))

    assert [(row.name, row.default_value) for row in (*lora.parameters, *mlp.parameters)] == [
        ("rank", 4),
        ("hidden", 32),
    ]
    assert len({lora.digest, mlp.digest}) == 2
    assert all(len(bytes.fromhex(digest)) == 32 for digest in (lora.digest, mlp.digest))
