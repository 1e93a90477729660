"""A run as a picture sees it: messages under real seals at times that the test sets, and one run grown by them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.seal import Opened, Opener, Sealer
from esper.narset.totals import Totals, encode
from esper.view.picture import Picture
from tests.sealed import MASTER, NOW_MS, RUN

Stage, Gate, Status, Reason = pb.SeedLifecycleStage, pb.SeedLifecycleGate, pb.ReceiptStatus, pb.ReasonCode
WORKERS = ("worker-0", "worker-1")
OPENER = Opener(
    MASTER.derive(RUN, [Role.OBSERVER]), guard=None, accept=frozenset(Domain) - {Domain.VOTE}, carries_out=True
)


@dataclass
class Look:
    """What stands beside the messages."""

    at_ms: int = NOW_MS
    totals: Mapping[bytes, bytes] | None = field(default_factory=dict)
    lags: Mapping[tuple[str, str], int | None] = field(default_factory=dict)
    refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


def said(role: Role, producer: str, message: Message, at_ms: int = 0, number: int = 0) -> Opened:
    """A message as it opens, `at_ms` after NOW_MS by the server's clock."""
    sealer = Sealer(_keyring(role), role, producer, clock_ns=lambda: (NOW_MS + at_ms) * 1_000_000)
    return OPENER.open(sealer.seal(message), f"{NOW_MS + at_ms}-{number}", NOW_MS + at_ms)


@cache
def _keyring(role: Role) -> RoleKeyring:
    return MASTER.derive(RUN, [role])


def beat(worker: str, at_ms: int, *seeds: pb.SeedState, **fields: object) -> Opened:
    """A heartbeat of a worker of two, at this time by its own clock too."""
    told = {"loss": 0.5, "incarnation": 7, "region": f"r{WORKERS.index(worker)}", **fields}
    message = pb.Heartbeat(
        version=1,
        worker=worker,
        rank=WORKERS.index(worker),
        world_size=len(WORKERS),
        time_ns=(NOW_MS + at_ms) * 1_000_000,
        seeds=seeds,
        **told,  # type: ignore[arg-type]  # fields of the message
    )
    return said(Role.WORKER, worker, message, at_ms)


def command(command_id: str, at_ms: int, operation: pb.SeedOperation, seed_id: str, site: str = "") -> Opened:
    """A seed's command, as the controller put it on its stream."""
    seed = pb.SeedCommand(seed_id=seed_id, operation=operation, site=site, blueprint_id="mlp" if site else "")
    kind = pb.CommandType.COMMAND_SEED
    message = pb.AdaptationCommand(version=1, command_id=command_id, command_type=kind, seed_command=seed)
    return said(Role.CONTROLLER, "controller", message, at_ms)


def went_back(entry_id: str, before_step: int) -> pb.BarrierCommit:
    """What is decided of the command r1 of this entry: to the snapshot of step 80."""
    ref = pb.CommittedCommand(
        stream="commands", entry_id=entry_id, command_id="r1", snapshot_step=80, envelope_digest=bytes(32)
    )
    return pb.BarrierCommit(
        version=1,
        round=9,
        effective_step=before_step,
        commands=[ref],
        roster_generation=1,
        digest=bytes(32),
        lease_token=1,
        commands_position="7-0",
        optimizer_position="0",
    )


def receipt(to: Opened, worker: str, at_ms: int, status: pb.ReceiptStatus, **fields: object) -> Opened:
    """An answer to a command by a worker, or by the coordinator."""
    told = {"step": 108, "time_ns": (NOW_MS + at_ms) * 1_000_000, "world_size": 2, **fields}
    message = pb.CommandReceipt(
        version=1,
        command_id=to.message.command_id,  # type: ignore[attr-defined]
        entry_id=to.entry_id,
        status=status,
        worker=worker,
        **told,  # type: ignore[arg-type]
    )
    return said(Role.COORDINATOR if worker == "coordinator" else Role.WORKER, worker, message, at_ms)


def seed(seed_id: str, stage: pb.SeedLifecycleStage, **fields: object) -> pb.SeedState:
    told = {"site": "head", "blueprint_id": "mlp", "alpha": 0.0, **fields}
    return pb.SeedState(seed_id=seed_id, stage=stage, **told)  # type: ignore[arg-type]


def commit(number: int, latency_ms: float, judged: str = "0") -> Opened:
    """What was decided in this round, once all was judged up to that entry of both streams."""
    message = pb.BarrierCommit(
        version=1,
        round=number,
        roster_generation=1,
        effective_step=108,
        digest=bytes(32),
        commands_position=judged,
        optimizer_position=judged,
        latency_ms=latency_ms,
        lease_token=1,
    )
    return said(Role.COORDINATOR, "coordinator", message, number)


def alarm(worker: str, at_ms: int, **attributes: str) -> Opened:
    """A breaker that has opened."""
    signal = pb.EmergencySignal(
        version=1,
        level=pb.EmergencyLevel.EMERGENCY_ELEVATED,
        reason="breaker.opened",
        origin=worker,
        triggered_at_ns=(NOW_MS + at_ms) * 1_000_000,
        global_step=90,
        packet_sequence=9,
        attributes=attributes,
    )
    return said(Role.WORKER, worker, signal, at_ms)


def totals(counted: int, regional: int, global_: int) -> dict[bytes, bytes]:
    """The hash that the global tier keeps."""
    fields = encode(Totals(counted, regional, global_, 0, 0, 0, pb.AggregatedTelemetry()))
    return {name.encode(): value for name, value in fields.items()}


def grown() -> Picture:
    """Two workers, a seed that is blended in, one that was lost, one that is for good; what was asked, and refused."""
    picture = Picture(RUN)
    graft = command("c1", 1_000, pb.SeedOperation.SEED_OP_START_GRAFTING, "lora")
    keep = command("c2", 2_000, pb.SeedOperation.SEED_OP_FOSSILIZE, "mlp")
    held = command("c3", 3_000, pb.SeedOperation.SEED_OP_STABILIZE, "lora")
    reset = command("c4", 4_000, pb.SeedOperation.SEED_OP_RESET, "bad")
    asked = command("c5", 5_000, pb.SeedOperation.SEED_OP_GERMINATE, "more", "head")
    for order in (graft, keep, held, reset, asked):
        picture.note(order)
    for told in (*_answers(graft, keep), *_refusals(held, reset), *map(_round, range(1, 101))):
        picture.note(told)
    for number in range(9):
        for worker in WORKERS:
            picture.note(_working(worker, number))
    picture.note(alarm("worker-1", 2_000, breaker="kernel", reason="ten failures", open_s="30"))
    for at_ms, counted in ((0, 8_192), (8_000, 9_216)):
        told_totals = totals(counted, counted // 32, counted // 1024)
        refused = {"commands": {"bad_seal": 2, "replayed": 1}, "r0/telemetry": {"malformed": 1}}
        lags = {("commands", "worker-0"): 0, ("commands", "worker-1"): 3}
        picture.look(Look(NOW_MS + at_ms, told_totals, lags, refused))
    return picture


def _working(worker: str, number: int) -> Opened:
    """One of nine heartbeats, a second apart: 20 steps of 64 examples each."""
    seeds = (
        seed("bad", Stage.SEED_STAGE_EMBARGOED, stage_since_step=80, embargo_until_epoch=9),
        seed("lora", Stage.SEED_STAGE_BLENDING, site="hidden", blueprint_id="lora", alpha=0.625, stage_since_step=100),
        seed("mlp", Stage.SEED_STAGE_FOSSILIZED, alpha=1.0, stage_since_step=104),
    )
    step = 14_000 + 20 * number
    told = {"step": step, "epoch": 141, "packets": step, "examples": 64 * step, "loss": 0.25}
    return beat(worker, 1_000 * number, *seeds, **told)


def _answers(graft: Opened, keep: Opened) -> list[Opened]:
    fit = {"steps": 64.0, "fit_first": 0.9488, "fit_last": 0.9242}
    blended = {"step": 100, "stage": Stage.SEED_STAGE_BLENDING, "gate": Gate.SEED_GATE_G1_GRADIENT_HEALTH}
    gain = {"mean": 0.2, "low": 0.15, "high": 0.25, "examples": 512.0}
    kept = {"step": 104, "stage": Stage.SEED_STAGE_FOSSILIZED, "gate": Gate.SEED_GATE_G4_SYSTEM_IMPACT}
    return [
        receipt(graft, "coordinator", 1_010, Status.RECEIPT_ACCEPTED, step=100),
        *(receipt(graft, worker, 1_020, Status.RECEIPT_APPLIED, evidence=fit, **blended) for worker in WORKERS),
        receipt(keep, "coordinator", 2_010, Status.RECEIPT_ACCEPTED, step=104),
        *(receipt(keep, worker, 2_020, Status.RECEIPT_APPLIED, evidence=gain, **kept) for worker in WORKERS),
    ]


def _refusals(held: Opened, reset: Opened) -> list[Opened]:
    failed = {"step": 108, "stage": Stage.SEED_STAGE_BLENDING, "gate": Gate.SEED_GATE_G2_STABILITY}
    detail = "alpha_gap is 0.375, expected 0"
    embargo = "embargoed until epoch 9, it is 7"
    return [
        receipt(held, "coordinator", 3_010, Status.RECEIPT_ACCEPTED),
        receipt(
            held, "worker-0", 3_020, Status.RECEIPT_FAILED, reason=Reason.REASON_GATE_FAILED, detail=detail, **failed
        ),
        receipt(reset, "coordinator", 4_010, Status.RECEIPT_REJECTED, reason=Reason.REASON_EMBARGOED, detail=embargo),
    ]


def _round(number: int) -> Opened:
    return commit(number, float(number))
