"""An optimizer whose step calls that of its class's parent takes one step, as torch's hooks are called for both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from esper.leyline import contracts as pb
from esper.session import Session
from tests.optimizer_kit import Kind, adjustment, command
from tests.seed_kit import Host, Op, new_host
from tests.session_kit import on_seed, order, own_optimizer, train, unsteered


class Logged(torch.optim.SGD):
    """Descends as its parent; `seen` are the learning rate and the number of parameters behind the parent's."""

    seen: tuple[float, int] = (0.0, 0)

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        [group] = self.param_groups
        self.seen = (group["lr"], len(group["params"]))
        return loss


def attached(kind: type[torch.optim.SGD], **options: Any) -> tuple[Host, Session]:
    host = new_host()
    torch.optim.SGD(host.parameters(), lr=1.0)  # from now on the parent's step calls hooks, too
    return host, unsteered(host, kind(host.parameters(), lr=0.05, momentum=0.9), "body", **options)


def with_a_seed(kind: type[torch.optim.SGD]) -> Mapping[str, torch.Tensor]:
    """What a host and its seed have learnt after some steps."""
    host, run = attached(kind)
    train(run, host, 1)
    germinate = on_seed(Op.SEED_OP_GERMINATE, site="body", blueprint_id="mlp")
    order(run, germinate, on_seed(Op.SEED_OP_START_TRAINING), own_optimizer("s0", 0.02))
    train(run, host, 5)
    return dict(run.executor.seeds["s0"].trainable()) | dict(host.named_parameters())


def test_its_seeds_learn_once_a_step() -> None:
    ours, parents = with_a_seed(Logged), with_a_seed(torch.optim.SGD)

    assert ours.keys() == parents.keys()
    assert all(torch.equal(ours[name], parents[name]) for name in ours)


def test_what_is_commanded_holds_until_its_own_step_is_over() -> None:
    host, run = attached(Logged)
    order(run, pb.AdaptationCommand(version=1, command_id="a", optimizer_adjustment=adjustment("host", (), lr=0.5)))

    train(run, host, 3)

    assert isinstance(run.optimizer, Logged)
    assert run.optimizer.seen[0] == 0.5
    assert run.optimizer.param_groups[0]["lr"] == 0.05


def test_in_a_step_without_a_lease_it_finds_nothing_until_its_own_step_is_over() -> None:
    host, run = attached(Logged, own_host=True)
    order(run, command(Kind.OPTIMIZER_COMMAND_STEP, "host", expected_step=3, num_steps=1))

    found = []
    for _ in range(4):
        train(run, host, 1)
        assert isinstance(run.optimizer, Logged)
        found.append(run.optimizer.seen[1])

    assert found == [0, 0, 4, 0]
    assert run.optimizer.param_groups[0]["params"] == list(host.parameters())
