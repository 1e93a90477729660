"""Checkpoints of a rank: made at its step boundary, gone back to, and resumed from."""

from __future__ import annotations

import math
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from esper.errors import CheckpointError, EsperError, RefusedError, SettingError, TrainingError
from esper.leyline import contracts as pb
from esper.leyline.entries import entry_order
from esper.tolaria.checkpoints.blob import marks_of
from esper.tolaria.checkpoints.common import newest_common
from esper.tolaria.checkpoints.manifest import EMERGENCY, FULL, Log, Manifest, Place
from esper.tolaria.checkpoints.rank import PutBack, RankState
from esper.tolaria.checkpoints.signing import Signer
from esper.tolaria.checkpoints.store import Checkpoint, Store, step_of
from esper.tolaria.checkpoints.tree import pack, unpack
from esper.tolaria.state.digest import parameter_digest
from esper.tolaria.state.sharded import parameters, whole

log = structlog.get_logger()

Mean = Callable[[float], float]  # over ranks, called by all of them alike


def alone(value: float) -> float:
    """The mean of one rank."""
    return value


@dataclass
class Checkpoints:
    """One rank's. Every rank makes its own before the same steps; a failure to write is told and training goes on.

    `mean` averages a number over the ranks, so that all go back to a checkpoint or none does.
    """

    state: RankState
    store: Store
    signer: Signer
    every: int = 0  # steps; 0: none is made but by `save` and `emergency`
    rank: int = 0
    world_size: int = 1
    mean: Mean = alone
    clock_ns: Callable[[], int] = time.time_ns
    num_failed: int = 0
    _step: int = 0
    _epoch: int = 0
    _wanted_at: int = 0  # before this step one is made, whatever the interval
    _resumed_at: int = 0  # of this one there is what was resumed from
    windows: Mapping[str, bytes] = field(default_factory=dict)  # of replay, by field, as the runtime tells of them
    decided: str = ""  # entry of the newest decision in the state
    resumed: Log = field(default_factory=Log)  # of the checkpoint that was put back at the start
    holds_back: Callable[[], bool] = lambda: False  # whether orders older than the newest are yet to be carried out
    on_kept: Callable[[Mapping[str, str]], None] = lambda positions: None
    on_failed: Callable[[int, str], object] = lambda step, why: None  # one could not be written
    settle: Callable[[], object] = lambda: None  # have all steps that are over told to the state, and stand_before
    _commit: pb.BarrierCommit = field(default_factory=pb.BarrierCommit)
    _beyond: set[str] = field(default_factory=set)  # entries of what the state holds that was decided after `decided`
    _held: dict[int, tuple[Path, bytes, Log]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.every < 0:
            raise SettingError("checkpoint_every", self.every, "a number of steps, or 0")
        undone = self._undone_names()
        for each in reversed(list(self.store.verified())):
            if isinstance(each, Checkpoint) and each.path.name not in undone:
                self._note(each)

    def note(self, order: pb.CommitOrder) -> None:
        """It was carried out: the logs are behind us up to where it says. An emergency command saves what is small.

        Not while older ones are yet to come, as after a resume: then the logs are behind us up to these, and what the
        state holds beyond them is named.
        """
        self._beyond.add(order.entry_id)
        if not self.holds_back():
            self._commit, self.decided = order.commit, order.entry_id or self.decided
            self._beyond = {each for each in self._beyond if entry_order(each) > entry_order(self.decided)}
        for opened in order.commands:
            if opened.adaptation.HasField("emergency_command"):
                self.in_emergency(opened.adaptation.emergency_command.reason or "emergency command")

    def due(self, step: int) -> bool:
        """After so many steps, and a rollback; a state that nothing has happened to is none to keep.

        Nor is that which was resumed from: who begins again and again there would displace all older ones by copies.
        """
        if self.every <= 0 or step <= 1:
            return False
        return step == self._wanted_at or ((step - 1) % self.every == 0 and step != self._resumed_at)

    def next_due(self, step: int) -> float:
        """The first step after this one before which one is made, unless something happens."""
        return step + self.every - (step - 1) % self.every if self.every else math.inf

    def stand_before(self, step: int, epoch: int) -> None:
        """What is saved in an emergency is of this step from now on."""
        self._step, self._epoch = step, epoch

    def at_boundary(self, step: int, epoch: int) -> None:
        """Before `step` begins: make one where it is due. Nothing is raised, whatever the disk does."""
        self.stand_before(step, epoch)
        if self.due(step):
            self._quietly(lambda: self.save(step, epoch))

    def save(self, step: int, epoch: int = 0) -> Path:
        """Make one of the state before `step`, durable when this returns. CheckpointError where it can't be written."""
        self.settle()
        tree, blob = pack(self.state.dump())
        digest = parameter_digest(whole(parameters(self.state.model)).items())
        made = self._write(
            Manifest(FULL, self._place(step, epoch), tree, marks_of(blob), self._log(), digest.hex()), blob
        )
        self._note(made)
        self.tell_kept()
        return made.path

    def tell_kept(self) -> None:
        """Say where the logs stood at the oldest one held: nothing resumes from before. Nothing is said without any."""
        there = sorted(step for step, (path, _, _) in self._held.items() if path.exists())
        if there:
            self.on_kept(self._held[there[0]][2].positions)

    def emergency(self, reason: str) -> Path:
        """Save what is small and can't be had again: seeds, alphas, their optimizers. CheckpointError as of `save`."""
        self.settle()
        tree, blob = pack(self.state.dump_seeds())
        place = self._place(self._step, self._epoch)
        return self._write(Manifest(EMERGENCY, place, tree, marks_of(blob), self._log(), reason=reason), blob).path

    def in_emergency(self, reason: str) -> Path | None:
        """`emergency` for those who must go on: a failure is told, and nothing raised."""
        return self._quietly(lambda: self.emergency(reason))

    def refs(self) -> list[pb.SnapshotRef]:
        """Steps that a rollback can go back to, with the digests of their parameters."""
        there = {step: digest for step, (path, digest, _) in self._held.items() if path.exists()}
        return [pb.SnapshotRef(step=step, digest=digest) for step, digest in sorted(there.items())]

    def undo(self, to_step: int, step: int) -> None:
        """The state of `to_step` is about to be put back before `step`: checkpoints of later steps count no more.

        Neither here nor for a process to come. Nothing is raised: where the disk refuses the record, they are taken
        out of sight if it lets that happen, it is told, and the rollback goes on.
        """
        self._wanted_at = step
        self._record(to_step, step)

    def restore(self, checkpoint_step: int, step: int) -> None:
        """Put the state of a checkpoint back; the run stands before `step` and counts on from there.

        All ranks, or none: RefusedError, with nothing changed on any, where it does not verify on some rank.
        """
        try:
            put_back = self._agreed(self._held[checkpoint_step][0] if checkpoint_step in self._held else None)
        except CheckpointError as error:
            detail = f"step {checkpoint_step} can't be gone back to: {error}"
            raise RefusedError(pb.ReasonCode.REASON_NO_SNAPSHOT, detail) from error
        self.undo(checkpoint_step, step)
        self._whole_or_never(put_back, step, resumes=False)

    def resume(self) -> Place | None:
        """Put back the newest checkpoint that verifies on every rank, hyperparameters and loader included.

        None where no rank has any, or some have nothing but the run's first: the run begins. CheckpointError, with
        nothing changed, where there are some and none of them can be taken up, or they are of ranks that now live
        elsewhere.
        """
        moved = self._moved()
        refused = [*moved]
        paths = {step_of(path): path for path in reversed(self._standing(refused))}
        if self.mean(float(bool(paths or refused))) == 0.0:
            return None
        step = newest_common(sorted(paths, reverse=True), lambda step: self._whole(paths[step], refused), self.mean)
        if step is None:
            if self.mean(float(self._has_begun_only(list(paths), refused != moved))) > 1.0 - 1e-6:
                log.warning("checkpoint.first_not_everywhere", steps=list(paths))
                self._abandon_later(0)
                return None
            why = "; ".join(refused) or "no step has one on every rank"
            raise CheckpointError(f"none can be resumed from: {why}", str(self.store.folder))
        put_back = self._agreed(paths[step])
        manifest = self.store.manifest(paths[step])
        place, self.resumed = manifest.place, manifest.log
        self.decided, self._beyond = self.resumed.positions.get("decisions", ""), {*(self.resumed.beyond or ())}
        self._commit = _commit_of(manifest)
        self._abandon_later(step)
        self._whole_or_never(put_back, place.step, resumes=True)
        self._resumed_at = place.step
        return place

    def _has_begun_only(self, steps: list[int], is_damaged: bool) -> bool:
        """That this rank has made the first one at most: the ranks ended before all had it, an interval after they
        had begun. Where it has none those beside it are told from it, too: nodes that dealt their ranks anew have
        the later ones of each other's."""
        met = steps or [step_of(path) for path in self.store.beside()]
        is_first = len(steps) <= 1 and all(each <= self.every + 1 for each in met)
        return self.every > 0 and is_first and not is_damaged

    def _moved(self) -> list[str]:
        """That this rank has none where others have: each node kept its own, and ranks were dealt anew."""
        found = self.store.beside() if self.world_size > 1 and not self.store.paths() else []
        others = sorted({path.parent.name for path in found})
        where = f"rank {self.rank} has none where there are those of {', '.join(others)}"
        what = "those of every rank, in a folder that all nodes share or on nodes that keep their ranks"
        return [f"{where}; expected {what}"] if others else []

    def _standing(self, refused: list[str]) -> list[Path]:
        """None, with the reason, where it is not to be told which of them were undone."""
        try:
            return self.store.standing()
        except CheckpointError as error:
            refused.append(str(error))
            return []

    def _abandon_later(self, step: int) -> None:
        """What another rank lacks, or what does not verify, is of a course that nobody takes up again."""
        if any(step_of(path) > step for path in self.store.standing()):
            self._record(step, step)

    def _record(self, to_step: int, step: int) -> None:
        self._held = {each: held for each, held in self._held.items() if each <= to_step}
        try:
            self.store.undo(to_step, self.clock_ns(), self.signer)
        except (CheckpointError, SettingError) as error:
            self._failed(step, error)

    def _undone_names(self) -> frozenset[str]:
        """Where that is not to be told, none may be gone back to."""
        try:
            return self.store.undone().names
        except CheckpointError as error:
            log.error("checkpoint.refused", why=str(error))
            return frozenset(path.name for path in self.store.paths())

    def _quietly(self, make: Callable[[], Path]) -> Path | None:
        try:
            return make()
        except (CheckpointError, SettingError) as error:
            self._failed(self._step, error)
            return None

    def _failed(self, step: int, error: EsperError) -> None:
        self.num_failed += 1
        log.error("checkpoint.failed", step=step, why=str(error))
        self.on_failed(step, str(error))

    def _whole(self, path: Path, refused: list[str]) -> bool:
        try:
            self.store.read(path)
        except CheckpointError as error:
            refused.append(str(error))
            log.warning("checkpoint.refused", why=str(error))
            return False
        return True

    def _agreed(self, path: Path | None) -> PutBack:
        """What puts it back, once every rank has found its own fit. CheckpointError on all of them otherwise."""
        put_back, why = None, CheckpointError("there is none of this step")
        try:
            put_back = None if path is None else self._prepared(path)
        except CheckpointError as error:
            why = error
        everywhere = self.mean(float(put_back is not None)) > 1.0 - 1e-6
        if put_back is None:
            raise why
        if not everywhere:
            raise CheckpointError("another rank can't go back to its own", str(path))
        return put_back

    def _whole_or_never(self, put_back: PutBack, step: int, *, resumes: bool) -> None:
        """What was checked is put back; if that stops half-way all the same, so must this process."""
        try:
            put_back(step, resumes)
        except EsperError as error:
            raise TrainingError(f"a checkpoint could be put back in part only: {error}") from error

    def _prepared(self, path: Path) -> PutBack:
        manifest, blob = self.store.read(path)
        try:
            self._check(manifest)
            return self.state.prepare(unpack(manifest.state, blob))
        except CheckpointError as error:
            raise error.at(path) from error

    def _check(self, manifest: Manifest) -> None:
        place = manifest.place
        if manifest.kind != FULL:
            raise CheckpointError(f"it holds {manifest.kind} state alone; expected {FULL}")
        if (place.rank, place.world_size) != (self.rank, self.world_size):
            met, here = f"rank {place.rank} of {place.world_size}", f"rank {self.rank} of {self.world_size}"
            raise CheckpointError(f"it is of {met}; this is {here}")

    def _write(self, manifest: Manifest, blob: bytes) -> Checkpoint:
        begun = time.perf_counter()
        made = self.store.save(manifest, blob, self.signer)
        ms = round((time.perf_counter() - begun) * 1e3, 1)
        log.info("checkpoint.made", path=str(made.path), kind=manifest.kind, size_bytes=len(blob), ms=ms)
        return made

    def _note(self, made: Checkpoint) -> None:
        manifest = made.manifest
        self._held[made.step] = made.path, bytes.fromhex(manifest.parameter_digest), Log(manifest.log.positions)

    def _place(self, step: int, epoch: int) -> Place:
        roster = self._commit.roster_generation
        return Place(self.signer.run_id, step, self.clock_ns(), epoch, self.rank, self.world_size, roster)

    def _log(self) -> Log:
        positions = {
            "commands": self._commit.commands_position,
            "optimizer": self._commit.optimizer_position,
            "decisions": self.decided,
        }
        windows = {name: b64encode(value).decode() for name, value in self.windows.items()}
        return Log({stream: at for stream, at in positions.items() if at}, windows, sorted(self._beyond))


def _commit_of(manifest: Manifest) -> pb.BarrierCommit:
    """As far as the next manifest needs it."""
    positions, roster_generation = manifest.log.positions, manifest.place.roster_generation
    return pb.BarrierCommit(
        roster_generation=roster_generation,
        commands_position=positions.get("commands", ""),
        optimizer_position=positions.get("optimizer", ""),
    )
