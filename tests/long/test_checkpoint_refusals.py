"""A checkpoint that does not fit this model says why, and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from esper.errors import CheckpointError, SettingError
from esper.kernels.blueprints import BLUEPRINTS
from esper.tolaria.checkpoints.tree import pack, unpack
from tests.checkpoint_kit import Training, Wider, signer
from tests.rank_kit import Ranks
from tests.seed_kit import Host, equal


class Longer(Host):
    """The host with one layer more."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.Linear(3, 3)


class Unshaped(Host):
    """The host with a layer that is shaped by its first batch, and has met none."""

    def __init__(self) -> None:
        super().__init__()
        self.extra = nn.LazyLinear(3)


def saved(folder: Path, host: Host | None = None) -> Training:
    """With a seed that learns."""
    run = Training(folder, host)
    run.train(1)
    run.germinate()
    run.train(3)
    run.checkpoints.save(run.step)
    return run


def refused(run: Training, why: str) -> None:
    """Resuming raises this, and nothing has changed."""
    before = run.everything()
    with pytest.raises(CheckpointError, match=why):
        run.checkpoints.resume()
    assert equal(run.everything(), before)
    assert run.stages() == {}


def test_names_that_differ_are_told(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(Training(tmp_path, Longer()), "another model: it lacks extra.weight; it lacks extra.bias")


def test_a_layer_without_a_shape_is_left_out_or_told(tmp_path: Path) -> None:
    first = saved(tmp_path / "unshaped", Unshaped())
    again = Training(tmp_path / "unshaped", Unshaped())
    assert again.checkpoints.resume() is not None
    assert equal(again.host.head.state_dict(), first.host.head.state_dict())

    saved(tmp_path / "shaped", Longer())
    with pytest.raises(CheckpointError, match=r"it has extra.weight, which has no shape here: call the model once"):
        Training(tmp_path / "shaped", Unshaped()).checkpoints.resume()


def test_shapes_that_differ_are_told(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(Training(tmp_path, Wider()), r"body.weight is float32\[6, 8\] in it and float32\[7, 8\] here")


def test_dtypes_that_differ_are_told(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(Training(tmp_path, Host().double()), r"body.weight is float32\[6, 8\] in it and float64\[6, 8\] here")


def test_another_optimizer_is_told(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(Training(tmp_path, optimizer="adamw"), "its optimizer is SGD; this one is AdamW")


def test_another_code_of_a_blueprint_is_told(tmp_path: Path) -> None:
    saved(tmp_path)
    run = Training(tmp_path)
    run.executor.kernels.blueprints = {**BLUEPRINTS, "mlp": replace(BLUEPRINTS["mlp"], code="another")}
    refused(run, "its seed 's0' is of blueprint 'mlp' with digest")


def test_another_number_of_ranks_is_told(tmp_path: Path) -> None:
    saved(tmp_path)
    refused(Training(tmp_path, rank=0, world_size=2), "it is of rank 0 of 1; this is rank 0 of 2")


def test_ranks_that_have_changed_nodes_are_told_and_do_not_begin_anew(tmp_path: Path) -> None:
    saved(tmp_path / "rank-0")

    refused(
        Training(tmp_path / "rank-1", rank=1, world_size=2),
        "rank 1 has none where there are those of rank-0; expected those of every rank, in a folder that all nodes",
    )


def begin_anew(*folders: Path) -> list[bool]:
    """Whether the rank that each is of does, where all of them resume."""
    ranks = Ranks(len(folders))

    def resumed(rank: int, folder: Path) -> bool:
        def mean(value: float) -> float:
            return float(ranks.agree(rank)(torch.tensor(value)))

        run = Training(folder, every=4, rank=rank, world_size=len(folders), mean=mean)
        try:
            return run.checkpoints.resume() is None and not run.checkpoints.store.standing()
        except CheckpointError:
            return False

    return ranks.all([partial(resumed, rank, folder) for rank, folder in enumerate(folders)])


@pytest.mark.parametrize(("num_steps", "begins"), [(4, True), (8, False)])
def test_ranks_that_ended_while_their_first_was_made_begin_anew(num_steps: int, begins: bool, tmp_path: Path) -> None:
    """Of any later one the others have an older one, unless that is lost: then nothing is begun anew."""
    early = Training(tmp_path / "rank-0", every=4, rank=0, world_size=2)
    early.train(num_steps + 1)

    assert begin_anew(tmp_path / "rank-0", tmp_path / "rank-1") == [begins] * 2


@pytest.mark.parametrize(("num_steps", "begins"), [(4, True), (8, False)])
def test_nodes_that_have_changed_their_ranks_begin_nothing_anew_behind_the_first(
    num_steps: int, begins: bool, tmp_path: Path
) -> None:
    """None of them has one of its own rank then, where each has one of the other's."""
    for rank in range(2):
        Training(tmp_path / f"node-{rank}" / f"rank-{rank}", every=4, rank=rank, world_size=2).train(num_steps + 1)

    assert begin_anew(tmp_path / "node-1" / "rank-0", tmp_path / "node-0" / "rank-1") == [begins] * 2


def test_who_is_in_no_process_group_begins_beside_others(tmp_path: Path) -> None:
    saved(tmp_path / "rank-0")

    assert Training(tmp_path / "north").checkpoints.resume() is None


def test_what_is_no_data_can_not_be_kept(tmp_path: Path) -> None:
    run = Training(tmp_path)
    run.checkpoints.state.loader = Awkward()

    with pytest.raises(SettingError, match="state at /loader/epoch is 'Awkward'"):
        run.checkpoints.save(1)
    run.checkpoints.every = 1
    run.train(2)  # training goes on

    assert (run.checkpoints.num_failed, run.step) == (1, 3)


def test_only_tensors_that_are_dense_or_coordinates_are_kept() -> None:
    with pytest.raises(SettingError, match="expected a dense tensor"):
        pack({"w": torch.eye(3).to_mkldnn()})


def test_the_momentum_of_sparse_gradients_comes_back_as_it_was() -> None:
    embed = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = torch.optim.SGD(embed.parameters(), lr=0.1, momentum=0.9)
    torch.autograd.backward(embed(torch.tensor([1, 3, 1])).square().sum())
    optimizer.step()
    held = optimizer.state[embed.weight]["momentum_buffer"]

    back = unpack(*pack({"momentum": held}))["momentum"]

    assert not held.is_coalesced() and back.is_coalesced() == held.is_coalesced()
    assert torch.equal(back._indices(), held._indices()) and torch.equal(back._values(), held._values())


def test_a_run_signs_as_itself(tmp_path: Path) -> None:
    run = saved(tmp_path)
    run.checkpoints.store._verifier = signer("other-00000000")

    with pytest.raises(CheckpointError, match=r"none can be resumed from: .*is not what its signature was made for"):
        run.checkpoints.resume()


class Awkward:
    """A loader whose state is an object."""

    def state_dict(self) -> dict[str, object]:
        return {"epoch": self}

    def load_state_dict(self, state: object) -> None:
        raise AssertionError(state)
