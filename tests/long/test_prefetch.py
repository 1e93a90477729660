"""Kernels are made ahead of their germination, between two steps, and nobody can tell from the training."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from esper.errors import RefusedError
from esper.kasmina.config import KasminaConfig
from esper.kasmina.germination.prefetch import MOST_UNJUDGED, Wanted
from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import APPLIED, SETTINGS, Bench, Host, Op, equal, optimizer_of
from tests.session_kit import on_seed, order, told, train, unsteered

AHEAD = 5  # steps between a commit and its effect


class Dropping(Host):
    """Draws from the global generator in each forward."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = nn.functional.dropout(super().forward(x), 0.2)
        return y


def begun(settings: KasminaConfig = SETTINGS) -> tuple[Host, Session]:
    torch.manual_seed(3)
    host = Dropping()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head", settings=settings)
    train(run, host, 1)
    return host, run


def commit(run: Session, *commands: pb.AdaptationCommand, ahead: int = AHEAD) -> None:
    """Have these carried out `ahead` steps from here."""
    boundary, here = run.exchange.boundary, run.step_number
    run.step_number += ahead
    order(run, *commands)
    run.step_number = here
    assert boundary.queued == 1


def germinate(seed_id: str = "s0", site: str = "body", blueprint: str = "mlp") -> pb.AdaptationCommand:
    return on_seed(Op.SEED_OP_GERMINATE, seed_id, site=site, blueprint_id=blueprint, parameters={"auto": 0.0})


def everything(host: nn.Module, run: Session) -> dict[str, torch.Tensor]:
    found = {name: each.detach().clone() for name, each in host.named_parameters()}
    for seed_id, seed in run.executor.seeds.items():
        found |= {f"{seed_id}/{name}": each.detach().clone() for name, each in seed.trainable()}
    return found | {"generator": torch.get_rng_state()}


def test_a_committed_germination_finds_its_kernel_pooled() -> None:
    host, run = begun()
    pool = run.executor.kernels.pool
    commit(run, germinate())

    train(run, host, 1)
    pooled, pooled_bytes = len(pool), pool.num_bytes
    train(run, host, AHEAD)

    assert (pooled, pooled_bytes) == (1, 4 * (32 * 9 + 6 * 33))
    assert (pool.stats.hits, pool.stats.misses, len(pool)) == (1, 1, 0)  # missed once: when it was made
    assert list(run.executor.seeds) == ["s0"]


def test_training_is_the_same_with_and_without() -> None:
    ends = []
    for prefetched in (True, False):
        host, run = begun()
        if prefetched:
            run.prefetch("body", "mlp", hidden=32)
        train(run, host, 1)
        assert len(run.executor.kernels.pool) == prefetched
        order(run, germinate(), on_seed(Op.SEED_OP_START_TRAINING))
        train(run, host, 4)
        assert run.executor.kernels.pool.stats.hits == prefetched
        ends.append(everything(host, run))

    assert equal(ends[0], ends[1])
    assert any(name.startswith("s0/") for name in ends[0])


def test_many_at_once_are_spread_over_the_steps_that_are_left() -> None:
    host, run = begun(replace(SETTINGS, seeds_per_site=7))
    places = ["body", *(f"body#{place}" for place in range(2, 8))]
    commit(run, *(germinate(f"s{at}", place, "lora") for at, place in enumerate(places)), ahead=3)

    sizes = []
    for _ in range(3):
        train(run, host, 1)
        sizes.append(len(run.executor.kernels.pool))
    train(run, host, 1)

    assert sizes == [3, 5, 7]
    assert run.executor.kernels.pool.stats.hits == 7
    assert len(run.executor.seeds) == 7


def test_nothing_is_compiled_where_the_germination_takes_effect() -> None:
    host, run = begun(replace(SETTINGS, torch_compile_backend="aot_eager"))
    commit(run, germinate(), on_seed(Op.SEED_OP_START_TRAINING))
    before = counters["stats"]["unique_graphs"]
    train(run, host, AHEAD)
    compiled = counters["stats"]["unique_graphs"]

    train(run, host, 3)

    assert compiled > before
    assert counters["stats"]["unique_graphs"] == compiled
    assert any(bool(p.any()) for _, p in run.executor.seeds["s0"].trainable())


def test_what_is_asked_for_before_the_first_batch_waits_for_it() -> None:
    host = Dropping()
    run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body", "head")
    run.prefetch("body", "lora", rank=2)

    train(run, host, 1)
    waiting = len(run.executor.prefetch)
    train(run, host, 1)

    assert (waiting, len(run.executor.prefetch)) == (1, 0)
    assert len(run.executor.kernels.pool) == 1
    [(event, facts)] = told(run)
    assert event == "kernel.prefetched"
    assert facts.keys() == {"site", "blueprint", "took_ms"}


@pytest.mark.parametrize(
    ("site", "blueprint", "given", "said"),
    [
        ("tail", "lora", {}, "no site is called 'tail'"),
        ("body", "lroa", {}, r"'lroa' \(near: 'lora'\)"),
        ("body", "lora", {"rank": 65.0}, "rank is 65"),
        ("body", "lora", {"auto": 1.0}, "no parameter 'auto'"),
    ],
)
def test_what_does_not_exist_is_refused_at_once(site: str, blueprint: str, given: dict[str, float], said: str) -> None:
    prefetch = Bench().executor.prefetch

    with pytest.raises(RefusedError, match=said):
        prefetch.want(Wanted(site, blueprint, given))

    assert len(prefetch) == 0


def test_a_misfit_is_told_of_and_its_command_is_answered_when_it_takes_effect() -> None:
    host, run = begun()
    run.exchange.rows.table()
    commit(run, germinate(blueprint="se"), germinate("s1", "nowhere"), ahead=2)

    train(run, host, 3)

    events = told(run)
    assert [event for event, _ in events] == ["kernel.not_prefetched", "command.failed", "command.failed"]
    assert "the output has 2 dimensions" in events[0][1]["detail"]
    assert not run.executor.seeds


def test_nothing_is_made_for_a_site_that_was_replaced_meanwhile_and_training_goes_on() -> None:
    host, run = begun()
    run.exchange.rows.table()
    run.prefetch("body", "lora", rank=2)

    host.body = nn.Linear(8, 6)
    train(run, host, 2)

    [(event, facts)] = told(run)
    assert event == "kernel.not_prefetched"
    assert "the module that 'body' was at attach() is no part of the model any more" in facts["detail"]
    assert len(run.executor.kernels.pool) == 0


def test_memory_that_seeds_need_is_not_given_to_kernels_in_advance() -> None:
    bench = Bench(settings=replace(SETTINGS, seeds_memory_bytes=2000))
    bench.train(1)
    prefetch = bench.executor.prefetch
    prefetch.want(Wanted("body", "mlp", {"hidden": 32.0}))  # 1,944 bytes

    [made] = [prefetch.make(wanted) for wanted in prefetch.take_due(2)]

    assert made.detail == "seeds and pools take 1944 of 2000 bytes with it"
    assert len(bench.executor.kernels.pool) == 0


def test_memory_of_a_seed_that_was_culled_is_given_to_kernels_in_advance() -> None:
    bench = Bench(settings=replace(SETTINGS, seeds_memory_bytes=8000))
    bench.train(1)
    bench.germinate(blueprint="mlp", hidden=32.0)  # 7,776 bytes, with gradients and moments
    bench.do(Op.SEED_OP_CULL)

    made = bench.executor.prefetch.make(Wanted("body", "mlp", {"hidden": 32.0}))

    assert made.detail == ""
    assert len(bench.executor.kernels.pool) == 1


def test_a_kernel_is_made_once_for_what_is_wanted_twice() -> None:
    bench = Bench()
    bench.train(1)
    prefetch, pool = bench.executor.prefetch, bench.executor.kernels.pool
    prefetch.want(Wanted("body", "mlp", {}))
    prefetch.want(Wanted("body", "mlp", {}))
    prefetch.foresee(pb.SeedCommand(operation=Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp"), 9)

    for step in range(2, 9):
        for wanted in prefetch.take_due(step):
            assert not prefetch.make(wanted).detail

    assert (len(pool), pool.stats.misses) == (1, 1)


def test_a_command_that_has_come_is_prepared_for_before_it_is_judged() -> None:
    host, run = begun()
    run.exchange._hear(pb.ToTrainer(foreseen=germinate().seed_command))

    train(run, host, 1)
    made = len(run.executor.kernels.pool)
    order(run, germinate())
    train(run, host, 1)

    assert made == 1
    assert run.executor.kernels.pool.stats.hits == 1
    assert [event for event, _ in told(run)].count("kernel.prefetched") == 1


def test_commands_that_nobody_has_judged_take_no_more_than_their_share() -> None:
    bench = Bench()
    bench.train(1)
    prefetch = bench.executor.prefetch
    assert bench.germinate("head", "noop").status == APPLIED

    for rank in range(1, 40):
        for site in ("body", "head"):
            prefetch.foresee(
                on_seed(Op.SEED_OP_GERMINATE, site=site, blueprint_id="lora", parameters={"rank": rank}).seed_command
            )

    assert len(prefetch) == MOST_UNJUDGED
    assert {wanted.site for wanted in prefetch.take_due(2)} == {"body"}
