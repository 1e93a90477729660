"""What tests of the barrier begin with: heartbeats, votes and commands of a small world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from esper.leyline import contracts as pb
from esper.leyline.envelope import DeadlineKind, Header
from esper.leyline.kinds import Domain, Role, kind_of
from esper.leyline.seal import Opened
from esper.tamiyo.coordinator import Coordinator
from esper.tamiyo.judge import Waiting
from esper.tamiyo.outcome import Outcome

S = 1_000_000_000
ACCEPTED, REJECTED = pb.ReceiptStatus.RECEIPT_ACCEPTED, pb.ReceiptStatus.RECEIPT_REJECTED
LORA = pb.KernelManifest(
    version=1,
    blueprint_id="lora",
    digest="aa",
    parameters=[pb.BlueprintParameter(name="rank", default_value=4, minimum=1, maximum=64, integer=True)],
)


def heartbeat(
    rank: int = 0, step: int = 0, *, world_size: int = 2, due: bool = False, incarnation: int = 1, applied: int = 0
) -> pb.Heartbeat:
    return pb.Heartbeat(
        version=1,
        worker=f"worker-{rank}",
        incarnation=incarnation,
        rank=rank,
        world_size=world_size,
        step=step,
        sites=["head", "hidden"],
        blueprints=[LORA],
        barrier_due=due,
        round_applied=applied,
    )


def vote(
    rank: int = 0,
    step: int = 10,
    *,
    number: int = 1,
    generation: int = 1,
    epoch: int = 0,
    digest: bytes = b"d" * 32,
    held_step: int = 0,
    seeds: Sequence[pb.SeedState] = (),
    snapshots: Mapping[int, bytes] | None = None,
    optimizers: Mapping[str, int] | None = None,
    requests: Sequence[pb.SeedRequest] = (),
    own_host: bool = False,
    settled: tuple[int, bytes] = (0, b""),
) -> pb.BarrierVote:
    return pb.BarrierVote(
        version=1,
        round=number,
        roster_generation=generation,
        worker=f"worker-{rank}",
        step=step,
        epoch=epoch,
        held=held_step > 0,
        held_step=held_step,
        parameter_digest=digest,
        seeds=seeds,
        snapshots=[pb.SnapshotRef(step=at, digest=what) for at, what in (snapshots or {}).items()],
        optimizers=optimizers or {"host": 1},
        requests=requests,
        own_host=own_host,
        settled_round=settled[0],
        settled_digest=settled[1],
    )


def state(seed_id: str, stage: pb.SeedLifecycleStage, site: str = "head", embargo: int = 0) -> pb.SeedState:
    return pb.SeedState(seed_id=seed_id, stage=stage, site=site, embargo_until_epoch=embargo)


def seed_command(
    operation: pb.SeedOperation,
    seed_id: str = "s0",
    *,
    site: str = "",
    blueprint: str = "",
    parameters: Mapping[str, float] | None = None,
) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(
        version=1,
        command_id=f"{seed_id}-{operation}",
        command_type=pb.CommandType.COMMAND_SEED,
        seed_command=pb.SeedCommand(
            seed_id=seed_id, operation=operation, site=site, blueprint_id=blueprint, parameters=parameters or {}
        ),
    )


def germinate(seed_id: str = "s0", site: str = "head") -> pb.AdaptationCommand:
    return seed_command(pb.SeedOperation.SEED_OP_GERMINATE, seed_id, site=site, blueprint="lora")


def train(seed_id: str = "s0") -> pb.AdaptationCommand:
    return seed_command(pb.SeedOperation.SEED_OP_START_TRAINING, seed_id)


def rollback(step: int = 0) -> pb.AdaptationCommand:
    return pb.AdaptationCommand(
        version=1,
        command_id=f"rollback-{step}",
        command_type=pb.CommandType.COMMAND_ROLLBACK,
        rollback_command=pb.RollbackCommand(target_step=step),
    )


def optimizer(
    kind: pb.OptimizerCommandType, name: str = "host", *, generation: int = 0, first: int = 0, steps: int = 0
) -> pb.OptimizerCommand:
    return pb.OptimizerCommand(
        version=1,
        command_id=f"{name}-{kind}",
        command_type=kind,
        optimizer_id=name,
        optimizer_generation=generation,
        expected_step=first,
        num_steps=steps,
    )


def header(deadline: tuple[DeadlineKind, int] = (DeadlineKind.NONE, 0), domain: Domain = Domain.COMMAND) -> Header:
    return Header(
        key_id=1,
        domain=domain,
        kind=kind_of(pb.AdaptationCommand),
        incarnation=1,
        sequence=1,
        issued_at_ns=0,
        deadline_kind=deadline[0],
        deadline=deadline[1],
        roster_generation=0,
        run_id="run-00000000",
        role=Role.CONTROLLER,
        producer="controller-0",
        target="*",
    )


def opened(message: pb.AdaptationCommand | pb.OptimizerCommand, entry_id: str) -> Opened:
    return Opened(header(), message, b"sealed", entry_id, False)


def waiting(
    message: pb.AdaptationCommand | pb.OptimizerCommand,
    entry_id: str = "1-0",
    deadline: tuple[DeadlineKind, int] = (DeadlineKind.NONE, 0),
) -> Waiting:
    stream = "commands" if isinstance(message, pb.AdaptationCommand) else "optimizer"
    return Waiting(stream, entry_id, message, header(deadline), b"e" * 32)


def commit_order(round_: int, step: int, *, back_to: int = 0, snapshot: bool = False) -> pb.CommitOrder:
    commit = pb.BarrierCommit(round=round_, effective_step=step, snapshot=snapshot)
    rollback = pb.AdaptationCommand(rollback_command=pb.RollbackCommand())
    ref = pb.CommittedCommand(snapshot_step=back_to, envelope_digest=bytes([round_]))
    command = pb.OpenedCommand(ref=ref, adaptation=rollback if back_to else pb.AdaptationCommand())
    return pb.CommitOrder(commit=commit, commands=[command], entry_id=f"{round_}-0")


def with_roster(now_ns: int = 0, **settings: int) -> Coordinator:
    coordinator = Coordinator("coordinator", **settings)
    for rank in (0, 1):
        coordinator.on_heartbeat(heartbeat(rank), now_ns)
    return coordinator


def commit_of(coordinator: Coordinator, *votes: pb.BarrierVote, now_ns: int = 0) -> tuple[pb.BarrierCommit, Outcome]:
    outcomes = [coordinator.on_vote(each, ("votes", f"{number}-0"), now_ns) for number, each in enumerate(votes)]
    [commit] = outcomes[-1].decisions
    assert isinstance(commit, pb.BarrierCommit)
    return commit, outcomes[-1]


def proposed(coordinator: Coordinator, now_ns: int = 0) -> pb.BarrierProposal:
    [proposal] = coordinator.tick(now_ns).decisions
    assert isinstance(proposal, pb.BarrierProposal)
    return proposal


def replica(number: int, step: int = 1, *, incarnation: int = 0, applied: int = 0, due: bool = False) -> pb.Heartbeat:
    beat = heartbeat(number, step, world_size=1, incarnation=incarnation or number + 10, applied=applied, due=due)
    beat.rank = 0
    return beat


def replicas(*numbers: int) -> Coordinator:
    coordinator = Coordinator("coordinator")
    for number in numbers:
        coordinator.on_heartbeat(replica(number), 0)
    coordinator.tick(0)
    return coordinator


def last_proposal(outcome: Outcome) -> pb.BarrierProposal:
    """What the outcome ends with."""
    proposal = outcome.decisions[-1]
    assert isinstance(proposal, pb.BarrierProposal)
    return proposal


def farewell(number: int) -> pb.Heartbeat:
    beat = replica(number)
    beat.report.CopyFrom(pb.WorkerReport(worker=beat.worker))
    return beat
