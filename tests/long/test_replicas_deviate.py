"""A rank whose weights or gradients are not those of most is named in the next round, and sent away by policy."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from esper.bus.group.delivery import Delivery
from esper.errors import TrainingError
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.runtime.beside.orders import Orders
from esper.session import Session
from esper.tamiyo.coordinator import Coordinator
from esper.tolaria.state.gradients import PARTS, GradientSample
from tests.rounds import heartbeat
from tests.seed_kit import Host, new_host, optimizer_of
from tests.session_kit import backward, order, train, unsteered

EPOCH = 100


def replicas(num: int) -> list[tuple[Host, Session]]:
    """The same model on so many ranks, after the same steps."""
    made = []
    for _ in range(num):
        host = new_host()
        made.append((host, unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")))
        train(made[-1][1], host, 2)
    return made


def decided(runs: list[Session], epoch: int = 0) -> pb.BarrierCommit:
    """What a coordinator makes of the votes that these would give now."""
    coordinator = Coordinator("coordinator", quarantine_from=EPOCH)
    for rank in range(len(runs)):
        coordinator.on_heartbeat(heartbeat(rank, runs[0].step_number, world_size=len(runs), due=True), 0)
    [asked] = coordinator.tick(0).decisions
    assert isinstance(asked, pb.BarrierProposal)
    said: list[object] = []
    for rank, run in enumerate(runs):
        vote = run.status.vote(asked, run.step_number, epoch)
        vote.worker = f"worker-{rank}"
        said += coordinator.on_vote(vote, ("votes", f"{rank}-0"), 0).decisions
    [commit] = said
    assert isinstance(commit, pb.BarrierCommit)
    return commit


def flip_a_bit(tensor: torch.Tensor, at: int) -> None:
    """The lowest bit of one element, as a fault of memory does."""
    with torch.no_grad():
        tensor.view(-1).view(torch.int32)[at] ^= 1


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_of_three_ranks_the_one_in_whose_memory_a_bit_has_flipped_is_named_in_the_next_round(victim: int) -> None:
    made = replicas(3)
    runs = [run for _, run in made]
    before = decided(runs)

    flip_a_bit(next(made[victim][0].parameters()), 7)
    after = decided(runs)

    assert (list(before.deviating), before.digests_compared) == ([], True)
    assert list(after.deviating) == [f"worker-{victim}"]
    assert list(after.quarantined) == []  # before the hundredth epoch it is told, and no more


def test_from_the_hundredth_epoch_on_it_is_sent_away_unless_no_majority_names_it() -> None:
    three, two = replicas(3), replicas(2)
    for made in (three, two):
        flip_a_bit(next(made[1][0].parameters()), 7)

    named = decided([run for _, run in three], EPOCH)
    only_detected = decided([run for _, run in two], EPOCH)

    assert list(named.quarantined) == ["worker-1"]
    assert (list(only_detected.deviating), list(only_detected.quarantined)) == (["worker-0", "worker-1"], [])


def test_a_rank_that_reduces_its_gradients_otherwise_is_named_though_weights_are_not_compared() -> None:
    made = replicas(3)
    for rank, (host, run) in enumerate(made):
        order(run)  # a commit that takes effect before the next step: its gradients are looked at
        with run.step():
            backward(host, run.step_number)
            if rank == 2:
                for parameter in host.parameters():
                    assert parameter.grad is not None
                    flip_a_bit(parameter.grad, 0)
            run.optimizer.step()
            run.optimizer.zero_grad()
        train(run, host, rank)  # they vote at different steps

    commit = decided([run for _, run in made])

    assert not commit.digests_compared
    assert list(commit.deviating_gradients) == ["worker-2"]


def test_ranks_that_vote_at_different_steps_again_name_it_by_what_they_held_where_the_first_round_took_effect() -> None:
    made = replicas(3)
    for rank, (host, run) in enumerate(made):
        run.status.identity = dataclasses.replace(run.status.identity, world_size=len(made))
        if rank == 2:
            flip_a_bit(next(host.parameters()), 7)
        order(run)  # of a round in which no digests were compared
        train(run, host, 1 + rank)

    commit = decided([run for _, run in made])

    assert {run.step_number for _, run in made} == {4, 5, 6}
    assert (commit.digests_compared, list(commit.deviating)) == (True, ["worker-2"])


def test_sixteen_rounds_look_at_every_element_of_a_gradient() -> None:
    parameter = torch.nn.Parameter(torch.zeros(100))
    for flipped in (0, 50, 99):
        seen = 0
        for number in range(PARTS):
            digests = set()
            for value in (0.0, 1.0):
                parameter.grad = torch.zeros(100)
                parameter.grad[flipped] = value
                sample = GradientSample()
                sample.ask(number, 5)
                sample.take([parameter], 5)
                digests.add(sample.digest)
            seen += len(digests) == 2
        assert seen == 1


@pytest.mark.parametrize("num", [64, 1 << 23])  # of the second a sixteenth is too much to be copied
def test_a_sample_tells_of_the_gradients_of_its_step_whatever_became_of_them(num: int) -> None:
    parameter, digests = torch.nn.Parameter(torch.zeros(num)), []
    parameter.grad = torch.ones(num)
    for becomes in (1.0, 3.0):
        sample = GradientSample()
        sample.ask(1, 5)
        parameter.grad.fill_(1.0)
        sample.take([parameter], 5)
        parameter.grad.fill_(becomes)
        sample.take([parameter], 6)
        digests.append((sample.step, sample.digest, sample.digest))

    assert digests[0] == digests[1]
    assert digests[0][1] == digests[0][2] != b""


def test_a_rank_that_is_quarantined_ends() -> None:
    commit = pb.BarrierCommit(round=1, effective_step=9, digest=barrier_digest(9, [], []), quarantined=["worker-1"])
    delivery = Delivery("decisions", "w", "1-0", b"", 1, "w")

    told, _ = Orders(worker="worker-0").on_commit(commit, delivery)
    with pytest.raises(TrainingError, match="worker-1 is quarantined"):
        Orders(worker="worker-1").on_commit(commit, delivery)

    assert [message.WhichOneof("message") for message in told] == ["commit"]
