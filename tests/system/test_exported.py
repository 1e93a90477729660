"""What a closed run leaves goes through torch.export as any model does."""

from __future__ import annotations

import warnings

import pytest
import torch

from tests.seed_kit import Op, batch, new_host
from tests.session_kit import on_seed, order, train
from tests.site_kit import attached, fossilize, start


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("blueprint", ["lora", "mlp", "norm"])
def test_a_model_with_a_fossil_can_be_exported(blueprint: str, strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    host = new_host()
    run = attached(host, "body")
    train(run, host, 1)
    start(run, host, "body", blueprint, "s0")
    fossilize(run, host, "s0")
    run.close()
    inputs, _ = batch(99)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        program = torch.export.export(host.eval(), (inputs,), strict=strict)

    torch.testing.assert_close(program.module()(inputs), host(inputs))
    assert {name for name, _ in program.named_parameters()} == {name for name, _ in host.named_parameters()}


@pytest.mark.parametrize("strict", [False, True])
def test_a_model_that_is_steered_is_exported_without_its_seeds(strict: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    host = new_host()
    run = attached(host, "body")
    train(run, host, 1)
    start(run, host, "body", "mlp", "s0")
    order(run, on_seed(Op.SEED_OP_START_GRAFTING, "s0"))
    train(run, host, 12)
    inputs, _ = batch(99)
    grown = host(inputs)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        program = torch.export.export(host, (inputs,), strict=strict)

    assert torch.equal(host(inputs), grown)
    run.close()
    torch.testing.assert_close(program.module()(inputs), host(inputs))
    assert not torch.allclose(grown, host(inputs))
