"""Ranges of what workers and the coordinator say to one another: heartbeats, votes, decisions, receipts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from esper.leyline import contracts as pb
from esper.leyline.succession import LAST, LAST_GENERATION, MOST, Decision
from esper.leyline.validate import bounds
from esper.leyline.validate.pruning import pruning_request

NUM_WORKERS = 4096
NUM_POSITIONS = 16
NUM_COMMANDS = 4096
NUM_RECORDS = 1024
SIGNATURE_BYTES = 64
MOST_REMEMBERED_BYTES = 16 << 10
"""Of a heartbeat. In memory it takes three times as much, for each of up to 1,024 producers."""
_STREAMS = ("commands", "optimizer")


class HeartbeatRule:
    """Refuses heartbeats. Of one producer each names the same blueprints again: what passed last is compared."""

    __slots__ = ("_passed",)

    def __init__(self) -> None:
        self._passed: Sequence[pb.KernelManifest] = ()

    def __call__(self, message: pb.Heartbeat) -> None:
        """Where a trainer stands. Loss and accuracy may be NaN: that is news."""
        bounds.name("worker", message.worker)
        bounds.text("region", message.region)
        bounds.at_least("world_size", message.world_size, 1)
        if message.rank >= message.world_size:
            raise bounds.refuse("rank", message.rank, f"below world_size {message.world_size}")
        bounds.at_most("step", message.step, MOST)
        for name in ("lease_token", "round_applied", "round_met"):
            bounds.at_most(name, getattr(message, name), LAST)
        bounds.at_most("roster_generation", message.roster_generation, LAST_GENERATION)
        bounds.known("busy", message.busy, pb.BusyWith.DESCRIPTOR, unknown=True)
        seed_states(message.seeds)
        bounds.names("sites", bounds.few("sites", message.sites, bounds.NUM_SEEDS), bounds.NAME_BYTES)
        self._manifests(message)
        bounds.measurements("hyperparameters", message.hyperparameters)
        if message.HasField("report"):
            worker_report(message.report)
        if message.HasField("pruning"):
            pruning_request(message.pruning)

    def _manifests(self, message: pb.Heartbeat) -> None:
        manifests = message.blueprints
        if manifests == self._passed:
            return
        for manifest in bounds.few("blueprints", manifests, bounds.NUM_SEEDS):
            _manifest(manifest)
        if message.ByteSize() <= MOST_REMEMBERED_BYTES:
            self._passed = pb.Heartbeat(blueprints=manifests).blueprints  # a copy: the message is its reader's


def barrier_vote(message: pb.BarrierVote) -> None:
    """A worker's promise in one round."""
    _round(message.round)
    bounds.name("worker", message.worker)
    for name in ("step", "held_step"):
        bounds.at_most(name, getattr(message, name), MOST)
    bounds.digest("parameter_digest", message.parameter_digest, optional=True)
    bounds.digest("gradient_digest", message.gradient_digest, optional=True)
    bounds.digest("settled_digest", message.settled_digest, optional=True)
    seed_states(message.seeds)
    for snapshot in bounds.few("snapshots", message.snapshots, bounds.NUM_SEEDS):
        bounds.digest("snapshot digest", snapshot.digest, optional=True)
    _requests(message.requests)
    bounds.count("optimizers", message.optimizers, bounds.NUM_SEEDS)
    bounds.names("an optimizer id", message.optimizers)


def barrier_proposal(message: pb.BarrierProposal) -> None:
    """The coordinator's call for votes."""
    _decided(message)
    roster, num_incarnations = bounds.few("roster", message.roster, NUM_WORKERS), len(message.incarnations)
    bounds.names("roster", roster)
    if not roster or len(set(roster)) != len(roster):
        raise bounds.refuse("roster", list(roster), "at least one worker, each named once")
    if num_incarnations not in (0, len(roster)):
        raise bounds.refuse("number of incarnations", num_incarnations, f"{len(roster)}, or none")


def barrier_commit(message: pb.BarrierCommit) -> None:
    """A decision to carry out."""
    _decided(message)
    for command in bounds.few("commands", message.commands, NUM_COMMANDS):
        _committed(command)
    bounds.digest("digest", message.digest)
    bounds.text("commands_position", message.commands_position)
    bounds.text("optimizer_position", message.optimizer_position)
    _requests(message.requests)
    for name in ("deviating", "deviating_gradients", "quarantined"):
        bounds.names(name, bounds.few(name, getattr(message, name), NUM_WORKERS))
    bounds.finite("latency_ms", message.latency_ms)


def barrier_abort(message: pb.BarrierAbort) -> None:
    """A round that ends without effect."""
    _decided(message)
    bounds.known("reason", message.reason, pb.ReasonCode.DESCRIPTOR, unknown=True)
    bounds.text("detail", message.detail, bounds.SENTENCE_BYTES)
    bounds.count("missing", message.missing, NUM_WORKERS)
    bounds.names("missing", message.missing)
    bounds.count("evicted", message.evicted, NUM_WORKERS)
    bounds.names("evicted", [process.worker for process in message.evicted])
    for process in message.evicted:
        bounds.texts("positions", process.positions, NUM_POSITIONS)


def leader_announcement(message: pb.LeaderAnnouncement) -> None:
    """Who leads from here on."""
    bounds.name("leader", message.leader)
    bounds.at_least("lease_token", message.lease_token, 1)
    bounds.at_most("lease_token", message.lease_token, LAST)


def receipt(message: pb.CommandReceipt) -> None:
    """What became of a command. Evidence may hold NaN: an unmeasured value is why a gate failed."""
    # A refused envelope has no command id that could be believed: its entry id names it.
    bounds.text("command_id", message.command_id)
    if message.entry_id or not message.command_id:
        bounds.entry_id("entry_id", message.entry_id)
    bounds.known("status", message.status, pb.ReceiptStatus.DESCRIPTOR)
    bounds.known("reason", message.reason, pb.ReasonCode.DESCRIPTOR, unknown=True)
    bounds.name("worker", message.worker)
    bounds.text("detail", message.detail, bounds.SENTENCE_BYTES)
    bounds.known("stage", message.stage, pb.SeedLifecycleStage.DESCRIPTOR, unknown=True)
    bounds.known("gate", message.gate, pb.SeedLifecycleGate.DESCRIPTOR, unknown=True)
    bounds.measurements("evidence", message.evidence)


def seed_states(seeds: Sequence[pb.SeedState]) -> None:
    """Where seeds stand. Norms and risks are as measured."""
    for seed in bounds.few("seeds", seeds, bounds.NUM_SEEDS):
        bounds.name("seed_id", seed.seed_id)
        bounds.known("stage", seed.stage, pb.SeedLifecycleStage.DESCRIPTOR, unknown=True)
        bounds.text("site", seed.site, bounds.NAME_BYTES)
        bounds.text("blueprint_id", seed.blueprint_id)
        bounds.finite("alpha", seed.alpha)
        bounds.measurements("metrics", seed.metrics)


def _round(number: int) -> None:
    bounds.at_least("round", number, 1)


def _decided(decision: Decision) -> None:
    _round(decision.round)
    bounds.at_most("round", decision.round, LAST)
    bounds.at_most("lease_token", decision.lease_token, LAST)
    bounds.at_most("roster_generation", decision.roster_generation, LAST_GENERATION)


def _committed(command: pb.CommittedCommand) -> None:
    if command.stream not in _STREAMS:
        raise bounds.refuse("stream", command.stream, " or ".join(_STREAMS))
    bounds.entry_id("entry_id", command.entry_id)
    bounds.name("command_id", command.command_id)
    bounds.digest("envelope_digest", command.envelope_digest)


def _requests(requests: Sequence[pb.SeedRequest]) -> None:
    for request in bounds.few("requests", requests, bounds.NUM_SEEDS):
        bounds.name("seed_id", request.seed_id)
        bounds.known("operation", request.operation, pb.SeedOperation.DESCRIPTOR)
        bounds.known("reason", request.reason, pb.ReasonCode.DESCRIPTOR, unknown=True)
        bounds.text("detail", request.detail, bounds.SENTENCE_BYTES)


def _manifest(manifest: pb.KernelManifest) -> None:
    bounds.name("blueprint_id", manifest.blueprint_id)
    bounds.text("digest", manifest.digest)
    bounds.at_most("bytes of the signature", len(manifest.signature), SIGNATURE_BYTES)
    bounds.known("tier", manifest.tier, pb.BlueprintTier.DESCRIPTOR, unknown=True)
    bounds.count("blueprint parameters", manifest.parameters, bounds.NUM_NUMBERS)
    for parameter in manifest.parameters:
        bounds.name("parameter name", parameter.name)
        if math.isnan(parameter.minimum) or math.isnan(parameter.maximum) or parameter.minimum > parameter.maximum:
            raise bounds.refuse(parameter.name, parameter.minimum, f"a minimum up to {parameter.maximum}")


def worker_report(report: pb.WorkerReport) -> None:
    """The last words of a trainer."""
    bounds.name("worker", report.worker)
    bounds.digest("parameter_digest", report.parameter_digest, optional=True)
    bounds.digest("part_digest", report.part_digest, optional=True)
    bounds.count("seeds", report.seeds, bounds.NUM_SEEDS)
    for seed in report.seeds:
        _seed_report(seed)
    bounds.measurements("notes", report.notes)
    bounds.text("data", report.data, bounds.NAME_BYTES)


def _seed_report(seed: pb.SeedReport) -> None:
    bounds.name("seed_id", seed.seed_id)
    bounds.text("site", seed.site, bounds.NAME_BYTES)
    bounds.text("blueprint_id", seed.blueprint_id)
    bounds.known("stage", seed.stage, pb.SeedLifecycleStage.DESCRIPTOR, unknown=True)
    bounds.count("records in history", seed.history, NUM_RECORDS)
    for record in seed.history:
        bounds.known("stage", record.stage, pb.SeedLifecycleStage.DESCRIPTOR, unknown=True)
        bounds.known("gate", record.gate, pb.SeedLifecycleGate.DESCRIPTOR, unknown=True)
        bounds.measurements("evidence", record.evidence)
        bounds.text("detail", record.detail, bounds.SENTENCE_BYTES)
