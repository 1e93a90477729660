"""Seeds' gradients are averaged over ranks as numpy would."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import numpy
import torch
import torch.distributed as dist

from esper.errors import TrainingError
from esper.session import joining
from esper.tolaria import missing_ranks
from esper.tolaria.reduce import SeedReducer
from tests.forked_kit import Forge, script
from tests.optimizer_kit import Seedling

WORLD = 2
PATIENCE = timedelta(seconds=150)
OTHER_RANK = "import sys; from tests.long.test_reduce import train_one_step; train_one_step(1, *sys.argv[1:])"


def gradient(rank: int, seed: str) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.float32]]:
    generator = numpy.random.default_rng([rank, *seed.encode()])
    return generator.normal(size=(2, 2)).astype(numpy.float32)


def train_one_step(rank: int, folder: str) -> None:
    """Rank 1 has no gradient for `half`, no rank has one for `none`; rank 0 lists its seeds in another order."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD, timeout=PATIENCE)
    reducer = SeedReducer(dist.new_group(timeout=PATIENCE))
    names = ["both", "half", "none"] if rank else ["none", "half", "both"]
    seeds = {name: Seedling(name) for name in names}
    seeds["both"].weight.grad = torch.from_numpy(gradient(rank, "both"))
    if rank == 0:
        seeds["half"].weight.grad = torch.from_numpy(gradient(rank, "half"))
    reducer.reduce(seeds)
    mean = reducer.mean(torch.tensor([rank + 0.1, 3.0]))
    torch.save({"mean": mean, **{name: seeds[name].weight.grad for name in names}}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def test_gradients_of_two_processes_become_their_mean(torch_forge: Forge, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        other = pool.submit(torch_forge.ended, script(OTHER_RANK, str(tmp_path)))
        train_one_step(0, str(tmp_path))
    assert other.result().returncode == 0, other.result().stderr

    said = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(WORLD)]
    both = (gradient(0, "both") + gradient(1, "both")) / numpy.float32(2)
    half = gradient(0, "half") / numpy.float32(2)

    for rank in range(WORLD):
        assert numpy.array_equal(said[rank]["both"].numpy(), both)
        assert numpy.array_equal(said[rank]["half"].numpy(), half)
        assert said[rank]["none"] is None
        assert said[rank]["mean"].dtype == torch.float64
        assert numpy.allclose(said[rank]["mean"].numpy(), [0.6, 3.0], rtol=1e-7)


THREE, SHORT = 3, timedelta(seconds=3)
ONE_OF_THREE = "import sys; from tests.long.test_reduce import reduce_with; reduce_with(*sys.argv[1:])"


def reduce_with(rank: str, folder: str) -> None:
    """Ranks reduce once. All but rank 1 do so once more, and then attach a session; rank 0 alone tries that again."""
    joining.COLLECTIVE_TIMEOUT, missing_ranks.PATIENCE = SHORT, timedelta(seconds=3)
    meet = f"file://{folder}/meet"
    dist.init_process_group("gloo", init_method=meet, rank=int(rank), world_size=THREE, timeout=PATIENCE)
    reducer = SeedReducer(joining._own_group(ready_s=PATIENCE.total_seconds()))
    reducer.mean(torch.ones(3))
    if rank != "1":
        try:
            reducer.mean(torch.ones(5))
        except TrainingError as error:
            Path(f"{folder}/{rank}").write_text(str(error))
        for at in ("attach", "again") if rank == "0" else ("attach",):
            try:
                joining._own_group(ready_s=1.0)
            except TrainingError as error:
                Path(f"{folder}/{rank}-{at}").write_text(str(error))
    dist.barrier()


def test_ranks_that_wait_in_vain_name_the_one_that_does_not_come(torch_forge: Forge, tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        ranks = [pool.submit(torch_forge.ended, script(ONE_OF_THREE, str(rank), str(tmp_path))) for rank in range(3)]

    assert [each.result().returncode for each in ranks] == [0, 0, 0], [each.result().stderr for each in ranks]
    for rank in (0, 2):
        said, attaching = [(tmp_path / f"{rank}{at}").read_text() for at in ("", "-attach")]
        assert said.startswith(f"rank {rank} could not reduce 5 values with rank 1; every rank runs")
        whom = r"(rank 1|ranks (0, 1|1, 2))"  # with torch 2.7 ranks 0 and 2 give up 11 s apart
        assert re.match(rf"rank {rank} could not meet {whom} in attach\(\); every rank .* within 4 s: ", attaching)
    assert (tmp_path / "0-again").read_text().startswith("rank 0 could not meet ranks 1, 2 in attach(); every rank")


def test_a_rank_alone_keeps_its_gradients_as_they_are() -> None:
    seed = Seedling()
    seed.has_gradient(0.3)
    before = seed.weight.grad

    SeedReducer().reduce({"s0": seed})

    assert seed.weight.grad is before


class Unasked(Seedling):
    """A walk through the names of 64 seeds' parameters takes as long as a quarter of the seeds' step."""

    def trainable(self) -> list[tuple[str, torch.nn.Parameter]]:
        raise AssertionError("a rank without peers has nothing to lay out")


def test_a_rank_without_peers_asks_no_seed_for_its_parameters() -> None:
    seed = Unasked("a")
    seed.weight.grad = torch.ones(2, 2)

    SeedReducer().reduce({"a": seed})

    assert torch.equal(seed.weight.grad, torch.ones(2, 2))
