"""A slot without a seed changes no bit of the host."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn

from esper.errors import SettingError
from esper.kasmina.executor import Executor
from tests.asked_of_torch import Operations
from tests.seed_kit import SETTINGS, Bench, Host, Op, TupleHost, batch, equal, loss_of, new_host, optimizer_of
from tests.session_kit import on_seed, order, unsteered


def bare_steps(kind: type[Host], optimizer_name: str, num_steps: int) -> Host:
    host = new_host(kind)
    optimizer = optimizer_of(optimizer_name, list(host.parameters()))
    for step in range(1, num_steps + 1):
        x, targets = batch(step)
        torch.autograd.backward(loss_of(host(x), targets).mean())
        optimizer.step()
        optimizer.zero_grad()
    return host


@pytest.mark.parametrize("kind", [Host, TupleHost])
@pytest.mark.parametrize("optimizer_name", ["sgd", "adamw"])
def test_dormant_slots_leave_training_bit_identical(kind: type[Host], optimizer_name: str) -> None:
    bare = bare_steps(kind, optimizer_name, 20)
    bench = Bench(new_host(kind), optimizer_name=optimizer_name)

    bench.train(20)

    x, _ = batch(99)
    assert torch.equal(bench.host(x), bare(x))
    assert equal(bench.host.state_dict(), bare.state_dict())
    assert equal(bench.gradients(99), Bench(bare, sites=()).gradients(99))


def test_a_dormant_slot_hands_on_the_very_output_object() -> None:
    class Keeper(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.given = x + 1
            return self.given

    host = nn.Sequential(Keeper())
    Executor(host, ["0"], run_id="r")

    value = host(torch.ones(2, 2))

    assert value is host[0].given


def test_a_dormant_slot_hangs_on_the_host_until_it_was_seen_and_again_with_a_seed() -> None:
    bench, hooks = Bench(), list[int]()
    table = bench.host.body._forward_hooks
    for act in (lambda: bench.train(1), lambda: bench.train(1), bench.germinate, lambda: bench.do(Op.SEED_OP_CULL)):
        hooks.append(len(table))
        act()
    bench.train(1)

    assert [*hooks, len(table)] == [1, 1, 0, 1, 0]


def test_a_slot_comes_back_to_its_place_among_the_hooks() -> None:
    bench = Bench(settings=replace(SETTINGS, seeds_per_site=3))
    table = bench.host.body._forward_hooks
    first = list(table)
    bench.train(2)
    later = bench.host.body.register_forward_hook(lambda *_: None)

    for site in ("body#3", "body", "body#2"):
        bench.germinate(site, seed_id=site)

    assert list(table) == [*first, later.id]


def test_a_deep_copy_of_the_host_is_inert() -> None:
    bench = Bench()
    bench.raise_seed("BLENDING")
    alone = new_host()
    alone.load_state_dict(bench.host.state_dict())
    x, _ = batch(99)

    averaged = copy.deepcopy(bench.host)

    assert torch.equal(averaged(x), alone(x))
    assert not torch.equal(bench.host(x), alone(x))


def test_a_deep_copy_computes_the_fossils_of_the_host() -> None:
    bench = Bench()
    bench.raise_seed("PROBATIONARY")
    bench.train(40)
    assert bench.do(Op.SEED_OP_FOSSILIZE).fossilized
    x, _ = batch(99)

    averaged = copy.deepcopy(bench.host)

    assert torch.equal(averaged(x), bench.host(x))


def test_an_unknown_site_names_those_that_exist() -> None:
    with pytest.raises(SettingError, match=r"'tail'.*act, body, head"):
        Executor(new_host(), ["tail"], run_id="r")


def test_a_site_is_found_below_the_prefixes_of_wrappers() -> None:
    executor = Executor(nn.ModuleDict({"module": new_host()}), ["module.body"], run_id="r")

    assert executor.sites == ["body"]


def test_an_encoder_takes_torchs_fast_path_in_evaluation_where_no_site_of_it_is_unseen_or_has_a_seed() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
    host = nn.Sequential(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "0.layers.0.linear1")
    x = torch.linspace(-1, 1, 4 * 5 * 8).reshape(4, 5, 8)

    def takes_it() -> bool:
        with torch.no_grad(), Operations() as asked:
            host.eval()(x)
        host.train()
        return torch.ops.aten._transformer_encoder_layer_fwd.default in asked.calls

    def step() -> None:
        with run.step():
            torch.autograd.backward(host(x).square().mean())

    assert not takes_it()  # its site was not seen
    step()
    assert takes_it()
    order(run, on_seed(Op.SEED_OP_GERMINATE, site="0.layers.0.linear1", blueprint_id="lora"))
    step()
    assert not takes_it()
    order(run, on_seed(Op.SEED_OP_CULL))
    step()
    step()
    assert takes_it()
