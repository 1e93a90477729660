"""Two ranks that see different things, of a gate, of a key's end, of what is not finite, end with one verdict."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from torch import nn

from esper.bus.group.delivery import Delivery
from esper.kasmina.moves import Outcome
from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer
from esper.runtime.beside.orders import Orders
from esper.tamiyo.coordinator import Coordinator
from tests.rank_kit import Ranks
from tests.rounds import heartbeat, vote
from tests.sealed import ENTRY, MASTER, NOW_MS, NOW_NS, RUN, command, refusal
from tests.seed_kit import APPLIED, Bench, Op

FAILED = pb.ReceiptStatus.RECEIPT_FAILED


def both(ranks: list[Bench], act: Callable[[Bench], Outcome]) -> list[Outcome]:
    """As ranks of one group, which agree by means."""
    group = Ranks(len(ranks))
    for number, rank in enumerate(ranks):
        rank.executor._collector.reduce = group.agree(number)
    return group.all([partial(act, rank) for rank in ranks])


def two_ranks(stage: str) -> list[Bench]:
    ranks = [Bench(), Bench()]
    for rank in ranks:
        rank.raise_seed(stage)
    return ranks


def graft(rank: Bench) -> Outcome:
    return rank.do(Op.SEED_OP_START_GRAFTING)


def offended(rank: Bench) -> None:
    """What only this rank has seen: a violation of isolation, with which G1 lets nothing pass."""
    rank.executor.seeds["s0"].violations = 1


def test_a_gate_that_one_rank_would_pass_and_the_other_fail_is_failed_by_both() -> None:
    alone = two_ranks("TRAINING")
    offended(alone[1])
    together = two_ranks("TRAINING")
    offended(together[1])

    by_themselves = [graft(rank) for rank in alone]
    outcomes = both(together, graft)

    assert [outcome.status for outcome in by_themselves] == [APPLIED, FAILED]
    assert [outcome.status for outcome in outcomes] == [FAILED, FAILED]
    assert outcomes[0].evidence == outcomes[1].evidence
    assert [rank.stage() for rank in together] == ["TRAINING", "TRAINING"]


def test_a_site_that_one_rank_has_replaced_is_none_for_both() -> None:
    ranks = [Bench(), Bench()]
    for rank in ranks:
        rank.train(1)
    ranks[1].host.head = nn.Linear(6, 3)

    outcomes = both(ranks, lambda rank: rank.germinate("head"))

    assert [outcome.status for outcome in outcomes] == [FAILED] * 2
    assert "on another rank" in outcomes[0].detail
    assert "is no part of the model any more" in outcomes[1].detail


def test_what_is_not_finite_on_one_rank_is_culled_on_both() -> None:
    ranks, coordinator = two_ranks("TRAINING"), Coordinator("coordinator")
    ranks[1].executor.seeds["s0"].complain(pb.ReasonCode.REASON_NON_FINITE, "4 forwards gated away")
    for number in (0, 1):
        coordinator.on_heartbeat(heartbeat(number, 100, due=True), 0)
    [asked] = coordinator.tick(0).decisions

    decisions: list[object] = []
    for number, rank in enumerate(ranks):
        given = vote(number, 100, number=asked.round, generation=asked.roster_generation)
        given.seeds.extend(rank.executor.states())
        given.requests.extend(rank.executor.requests())
        decisions += coordinator.on_vote(given, ("votes", f"{number}-0"), 0).decisions
    [commit] = decisions
    assert isinstance(commit, pb.BarrierCommit)
    stages = [rank.stage() for rank in ranks]
    for rank in ranks:
        for request in commit.requests:
            rank.executor.request(request, commit.effective_step, 0)

    assert [len(rank.executor.requests()) for rank in two_ranks("TRAINING")] == [0, 0]
    assert stages == ["TRAINING", "TRAINING"]  # a rank that complains changes nothing by itself
    assert [rank.stage() for rank in ranks] == ["EMBARGOED", "EMBARGOED"]


ROTATED = MASTER.rotate(NOW_NS, overlap_s=0)
LATER_MS = NOW_MS + 3_600_000
BEFORE, AT_ITS_END = f"{NOW_MS - 1}-0", ENTRY


def opener(role: Role) -> Opener:
    return Opener(
        ROTATED.derive(RUN, [role]), guard=ReplayGuard(), accept=[Domain.COMMAND], carries_out=role is Role.WORKER
    )


def sealed() -> bytes:
    """By the key that ends now."""
    keys = MASTER.derive(RUN, [Role.CONTROLLER])
    return Sealer(keys, Role.CONTROLLER, "controller-0", clock_ns=lambda: NOW_NS - 1).seal(command())


def test_a_key_is_judged_by_the_entry_and_not_by_when_a_rank_comes_to_read_it() -> None:
    data = sealed()
    judged = opener(Role.COORDINATOR).open(data, BEFORE, NOW_MS)
    ref = pb.CommittedCommand(
        stream="commands", entry_id=BEFORE, command_id=command().command_id, envelope_digest=judged.digest
    )
    commit = pb.BarrierCommit(
        round=1, effective_step=9, commands=[ref], commands_position=BEFORE, digest=barrier_digest(9, [ref], [])
    )

    told = []
    for read_ms in (NOW_MS, LATER_MS):  # one rank at once, one an hour after the key's end
        orders, opened = Orders(), opener(Role.WORKER).open(data, BEFORE, read_ms)
        orders.on_command("commands", opened, Delivery("commands", "w", BEFORE, data, 1, "w"))
        said, _ = orders.on_commit(commit, Delivery("decisions", "w", f"{LATER_MS}-0", b"", 1, "w"))
        told.append([message.commit.commands[0].adaptation for message in said])

    assert told == [[command()], [command()]]


@pytest.mark.parametrize("read_ms", [NOW_MS, LATER_MS])
@pytest.mark.parametrize("role", [Role.COORDINATOR, Role.WORKER])
def test_an_entry_made_at_a_keys_end_is_refused_by_everybody_whenever_they_read_it(role: Role, read_ms: int) -> None:
    assert refusal(opener(role), sealed(), AT_ITS_END, read_ms) == "REASON_UNKNOWN_KEY"
