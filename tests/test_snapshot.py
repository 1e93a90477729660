"""A rollback puts back what a snapshot holds, bit for bit."""

from __future__ import annotations

import pytest
import torch

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.tolaria.optimizers.optimizers import Optimizers
from esper.tolaria.reduce import SeedReducer
from esper.tolaria.state.digest import parameter_digest
from esper.tolaria.state.snapshot import Snapshot, Snapshots
from tests.optimizer_kit import Seedling


class Rank:
    """A model with dropout and batch norm, a host optimizer, and one seed that learns beside it."""

    def __init__(self, kind: str = "sgd") -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5))
        parameters = self.model.parameters()
        self.host: torch.optim.Optimizer = (
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9) if kind == "sgd" else torch.optim.AdamW(parameters)
        )
        self.seed = Seedling()
        self.optimizers = Optimizers(self.host, reduce=SeedReducer())
        self.optimizers.create(self.seed)
        self.snapshots = Snapshots(self.model, self.optimizers)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            self.host.zero_grad()
            inputs = torch.arange(12.0).reshape(3, 4) * (step % 3 + 1)
            (self.model(inputs).square().sum() * 0.01 + self.seed.weight.square().sum()).backward()
            self.host.step()
            self.optimizers.step(step)

    def everything(self) -> list[torch.Tensor]:
        return [tensor.detach().clone() for tensor in (*self.model.state_dict().values(), self.seed.weight)]


def equal(left: list[torch.Tensor], right: list[torch.Tensor]) -> bool:
    return len(left) == len(right) and all(map(torch.equal, left, right))


def addresses(snapshot: Snapshot) -> set[int]:
    return {tensor.data_ptr() for tensor in (*snapshot.kept, *snapshot.optimizers.tensors())}


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_training_on_from_a_restored_snapshot_is_bit_identical(kind: str) -> None:
    rank = Rank(kind)
    rank.train(0, 5)
    rank.snapshots.take(5, extra=rank.seed.weight.detach().clone())
    rank.train(5, 9)
    expected = rank.everything()

    def seed_back(extra: object) -> dict[str, Seedling]:
        assert isinstance(extra, torch.Tensor)
        rank.seed.weight.data.copy_(extra)
        return {"s0": rank.seed}

    rank.train(9, 20)
    rank.snapshots.restore(5, seed_back)
    rank.train(5, 9)

    assert equal(rank.everything(), expected)


def test_the_momentum_of_sparse_gradients_is_kept_beside_a_weight_of_its_shape() -> None:
    host = torch.nn.Embedding(6, 4, sparse=True)
    optimizer = torch.optim.SGD(host.parameters(), lr=0.1, momentum=0.9)
    snapshots = Snapshots(host, Optimizers(optimizer, reduce=SeedReducer()))

    def train(first: int, last: int) -> torch.Tensor:
        for step in range(first, last):
            snapshots.take(step)  # the third one copies into what the first one has given up
            optimizer.zero_grad()
            torch.autograd.backward(host(torch.tensor([1, 3, 1, step % 6])).square().sum())
            optimizer.step()
        return host.weight.detach().clone()

    expected = train(0, 6)
    snapshots.restore(4)

    assert torch.equal(train(4, 6), expected)


@pytest.mark.parametrize("cast", [False, True])
def test_a_buffer_that_its_module_makes_anew_is_put_back(cast: bool) -> None:
    rank = Rank()
    rank.model.register_buffer("mean", torch.zeros(2))
    rank.snapshots.take(1)

    rank.model.mean = rank.model.get_buffer("mean") + 1.0  # as a moving average, or a codebook, is kept
    if cast:
        rank.model.double()
    rank.snapshots.restore(1)

    dtype = torch.float64 if cast else torch.float32
    assert torch.equal(rank.model.get_buffer("mean"), torch.zeros(2, dtype=dtype))
    assert {each.dtype for each in rank.model.buffers() if each.is_floating_point()} == {dtype}


def test_a_seed_built_anew_gets_its_moments_back_by_name() -> None:
    rank = Rank()
    rank.train(0, 5)
    rank.snapshots.take(5, extra=rank.seed.weight.detach().clone())
    rank.train(5, 9)
    expected = rank.everything()

    def seed_back(extra: object) -> dict[str, Seedling]:
        assert isinstance(extra, torch.Tensor)
        rank.seed = Seedling(weight=torch.nn.Parameter(extra.clone()))
        return {"s0": rank.seed}

    rank.optimizers.drop("s0")  # culled meanwhile
    rank.snapshots.restore(5, seed_back)
    rank.train(5, 9)

    assert equal(rank.everything(), expected)


def test_a_snapshot_taken_before_the_first_step_forgets_all_moments() -> None:
    rank = Rank()
    before = rank.everything()
    rank.snapshots.take(0, extra=None)
    rank.train(0, 4)

    rank.snapshots.restore(0)

    assert equal(rank.everything()[:-1], before[:-1])
    assert not rank.host.state
    assert not rank.optimizers.has("s0")  # no seed came back for it


def test_fossils_made_since_leave_the_optimizer_and_hyperparameters_stay() -> None:
    rank = Rank()
    rank.snapshots.take(3)
    fossil = Seedling().weight
    rank.optimizers.add_to_host([fossil])
    fossil.grad = torch.ones(2, 2)
    rank.host.step()
    rank.host.param_groups[0]["lr"] = 0.025

    rank.snapshots.restore(3)

    assert len(rank.host.param_groups) == 1
    assert fossil not in rank.host.state
    assert rank.host.param_groups[0]["lr"] == 0.025


def test_only_the_newest_snapshots_are_kept_and_named_by_step_and_digest() -> None:
    rank = Rank()

    digests = {}
    for step in (100, 200, 300):
        rank.train(step, step + 1)
        digests[step] = parameter_digest(rank.model.named_parameters())
        rank.snapshots.take(step)

    assert {ref.step: ref.digest for ref in rank.snapshots.refs()} == {step: digests[step] for step in (200, 300)}


def test_a_rollback_leaves_no_way_to_what_it_undid() -> None:
    rank = Rank()
    for step in (100, 200):
        rank.train(step, step + 1)
        rank.snapshots.take(step)

    rank.snapshots.restore(100)

    assert [ref.step for ref in rank.snapshots.refs()] == [100]


def test_buffers_of_a_snapshot_that_gave_way_are_used_again() -> None:
    rank = Rank()
    rank.train(0, 1)
    for step in (1, 2):
        rank.snapshots.take(step)
    first = addresses(rank.snapshots._taken[1])

    rank.snapshots.take(3)

    assert addresses(rank.snapshots._taken[3]) == first


def test_an_unknown_snapshot_is_refused_with_those_kept() -> None:
    rank = Rank()
    rank.snapshots.take(100)

    with pytest.raises(RefusedError, match="no snapshot of step 7; kept: 100") as refused:
        rank.snapshots.restore(7)

    assert refused.value.reason == pb.ReasonCode.REASON_NO_SNAPSHOT
