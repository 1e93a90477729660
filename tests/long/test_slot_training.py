"""A TRAINING seed leaves the host's values and gradients bit-identical."""

from __future__ import annotations

import pytest
import torch

from tests.seed_kit import Bench, Host, Op, TupleHost, batch, equal, new_host


def grown(bench: Bench, site: str, blueprint: str) -> Bench:
    """A TRAINING seed whose delta is far from zero, in a host that was never stepped."""
    bench.host_lr = 0.0
    bench.optimizer.param_groups[0]["lr"] = 0.0
    bench.train(1)
    bench.germinate(site, blueprint)
    bench.do(Op.SEED_OP_START_TRAINING)
    bench.train(5)
    return bench


@pytest.mark.parametrize("blueprint", ["lora", "mlp"])
@pytest.mark.parametrize("site", ["body", "head"])
@pytest.mark.parametrize("kind", [Host, TupleHost])
def test_host_gradients_are_those_of_the_host_alone(kind: type[Host], site: str, blueprint: str) -> None:
    alone = Bench(new_host(kind), sites=())
    bench = grown(Bench(new_host(kind)), site, blueprint)
    x, _ = batch(99)

    gradients = bench.gradients(99)

    assert equal(gradients, alone.gradients(99))
    assert torch.equal(bench.host(x), alone.host(x))
    assert any(p.grad is not None and p.grad.any() for _, p in bench.executor.seeds["s0"].trainable())


@pytest.mark.parametrize("blueprint", ["lora", "mlp"])
def test_the_host_trains_to_the_same_bits_beside_a_seed(blueprint: str) -> None:
    alone = Bench(sites=())
    alone.train(31)
    bench = Bench()

    bench.raise_seed("TRAINING", blueprint=blueprint)

    assert bench.step == alone.step
    assert equal(bench.host.state_dict(), alone.host.state_dict())


def test_without_gradients_a_training_seed_is_not_run() -> None:
    bench = grown(Bench(), "body", "mlp")
    before = bench.executor.seeds["s0"].meter.sizes.total

    with torch.no_grad():
        bench.host(batch(99)[0])

    assert bench.executor.seeds["s0"].meter.sizes.total == before


def test_a_paused_seed_is_the_identity_and_learns_nothing() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    alone = new_host()
    alone.load_state_dict(bench.host.state_dict())
    x, _ = batch(99)

    bench.executor.pause("s0", paused=True)

    assert torch.equal(bench.host(x), alone(x))
    assert not bench.executor.learning()
    bench.executor.pause("s0", paused=False)
    assert not torch.equal(bench.host(x), alone(x))
