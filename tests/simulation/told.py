"""What one rank may be told: commands, good and bad, and decisions that name them, as a plain list says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import sha256

from google.protobuf.message import Message

from esper.leyline import contracts as pb
from esper.leyline.digest import barrier_digest
from esper.leyline.keys.keyring import MasterKey, MasterKeyring, RoleKeyring, Validity
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer
from tests.altered import altered
from tests.simulation.arrivals import INCARNATION, ME, NOW_MS, ROUND_STEPS, Logs, Outcome
from tests.simulation.keys import COORDINATOR, MASTER
from tests.simulation.record import RUN

COMMANDING = [Role.CONTROLLER, Role.OPTIMIZER]
KEYS = MASTER.derive(RUN, COMMANDING)
STRANGER = MasterKeyring([MasterKey(Validity(9, 0, 2**63), bytes(32))]).derive(RUN, COMMANDING)
STALE_MS = 600_000
FLAWS = ("replayed", "junk", "stale", "unknown key", "another's", "senseless", "missing")
"""What a rank may find in place of an entry that a commit names."""
STREAMS = {"c": "commands", "o": "optimizer"}
BOTH = (ME, "worker-1")


@dataclass(frozen=True)
class Said:
    """One decision: of round `number`, under a leader's token and a roster's generation."""

    kind: str  # proposal, commit, abort, leader
    number: int = 0
    names: tuple[str, ...] = ()  # entries, such as "c1" of :commands and "o1" of :optimizer
    token: int = 1
    generation: int = 1
    roster: tuple[str, ...] = BOTH
    evicts: bool = False  # the trainer of this rank
    step: int = 0

    @property
    def effective_step(self) -> int:
        return self.step or ROUND_STEPS * self.number


@dataclass
class Script:
    """Decisions in their order; what is wrong with entries that they name."""

    decisions: tuple[Said, ...]
    flaws: Mapping[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return sorted({name for said in self.decisions for name in said.names})

    def logs(self) -> Logs:
        """As Redis holds them, all published."""
        return Logs(self._sealed, {log: len(rows) for log, rows in self._sealed.items()})

    @cached_property
    def _sealed(self) -> dict[str, list[tuple[str, bytes]]]:
        commands = {name: _command(name, self.flaws.get(name, "")) for name in self.names}
        found: dict[str, list[tuple[str, bytes]]] = {"commands": [], "optimizer": [], "decisions": []}
        for name, sealed in commands.items():
            rows, flaw = found[STREAMS[name[0]]], self.flaws.get(name, "")
            if flaw == "replayed":  # what was met before, as the first of all
                rows.insert(0, (f"{NOW_MS}-0", sealed))
            if flaw != "missing":
                rows.append((entry_id(name), sealed))
        seal = Sealer(COORDINATOR, Role.COORDINATOR, "coordinator", clock_ns=lambda: NOW_MS * 1_000_000).seal
        for at, said in enumerate(self.decisions):
            found["decisions"].append((f"{NOW_MS + 100 + at}-0", seal(_decision(said, commands))))
        return found

    def expected(self, began: int = 0, *, resumed: bool = False) -> tuple[Outcome, str]:
        """What is carried out, and the error that ends it; of a trainer that began when so many decisions were there.

        By the words of docs/internals/rounds.md alone: the first decision of a round counts, none of a leader who was
        replaced or of an older roster, and a round that was proposed before the trainer began binds it to nothing.
        """
        past = max(
            (said.number for said in self.decisions[:began] if said.kind == "proposal" and ME in said.roster), default=0
        )
        carried_out: list[tuple[int, int, tuple[str, ...]]] = []
        for at, said in self._in_force():
            is_past = at < began or said.number <= past
            if said.evicts and not is_past:
                return tuple(carried_out), "EvictedError"
            if said.kind != "commit" or (is_past and not (resumed and at < began)):
                continue
            if any(name in self.flaws for name in said.names):
                return tuple(carried_out), "TrainingError"
            carried_out.append((said.number, said.effective_step, said.names))
        return tuple(carried_out), ""

    def commits(self) -> list[Said]:
        """Those that count."""
        return [said for _, said in self._in_force() if said.kind == "commit"]

    def _in_force(self) -> Iterable[tuple[int, Said]]:
        token = generation = decided = 0
        for at, said in enumerate(self.decisions):
            if said.token < token or (said.kind != "leader" and said.generation < generation):
                continue
            token = said.token
            generation = generation if said.kind == "leader" else said.generation
            if said.kind in ("commit", "abort") and said.number > decided:
                decided = said.number
                yield at, said


def entry_id(name: str) -> str:
    return f"{NOW_MS + int(name[1:])}-0"


@cache
def _sealer(role: Role, flaw: str) -> Sealer:
    keys: RoleKeyring = STRANGER if flaw == "unknown key" else KEYS
    at_ms = NOW_MS - STALE_MS if flaw == "stale" else NOW_MS
    return Sealer(keys, role, f"controller {flaw}".strip(), clock_ns=lambda: at_ms * 1_000_000)


@cache
def _command(name: str, flaw: str) -> bytes:
    message, role = _message(name)
    if flaw == "senseless":
        message.ClearField("command_type")
    sealed = _sealer(role, flaw).seal(message, target="worker-9" if flaw == "another's" else "*")
    return altered(sealed) if flaw == "junk" else sealed


def _message(name: str) -> tuple[pb.AdaptationCommand | pb.OptimizerCommand, Role]:
    if name[0] == "o":
        kind = pb.OptimizerCommandType.OPTIMIZER_COMMAND_RESET_STATE
        return pb.OptimizerCommand(version=1, command_id=name, command_type=kind, optimizer_id="host"), Role.OPTIMIZER
    cull = pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL)
    of_seed = pb.CommandType.COMMAND_SEED
    return pb.AdaptationCommand(version=1, command_id=name, command_type=of_seed, seed_command=cull), Role.CONTROLLER


def _decision(said: Said, commands: Mapping[str, bytes]) -> Message:
    if said.kind == "leader":
        return pb.LeaderAnnouncement(version=1, leader="coordinator", lease_token=said.token)
    decision: pb.BarrierProposal | pb.BarrierCommit | pb.BarrierAbort
    match said.kind:
        case "proposal":
            decision = pb.BarrierProposal(roster=said.roster)
        case "abort":
            evicted = [pb.EvictedProcess(worker=ME, incarnation=INCARNATION)] if said.evicts else []
            decision = pb.BarrierAbort(evicted=evicted)
        case _:
            decision = _commit(said, commands)
    decision.version, decision.round = 1, said.number
    decision.roster_generation, decision.lease_token = said.generation, said.token
    return decision


def _commit(said: Said, commands: Mapping[str, bytes]) -> pb.BarrierCommit:
    refs = [
        pb.CommittedCommand(
            stream=STREAMS[name[0]],
            entry_id=entry_id(name),
            command_id=name,
            envelope_digest=sha256(commands[name]).digest(),
        )
        for name in said.names
    ]
    return pb.BarrierCommit(
        effective_step=said.effective_step,
        commands=refs,
        digest=barrier_digest(said.effective_step, refs, []),
        commands_position=_position("c", said.names),
        optimizer_position=_position("o", said.names),
    )


def _position(log: str, names: Iterable[str]) -> str:
    return max((entry_id(name) for name in names if name[0] == log), default="")


def proposal(number: int, *, token: int = 1, generation: int = 1, roster: tuple[str, ...] = BOTH) -> Said:
    return Said("proposal", number, (), token, generation, roster)


def commit(number: int, *names: str, token: int = 1, generation: int = 1, step: int = 0) -> Said:
    return Said("commit", number, names, token, generation, step=step)


def abort(number: int, *, token: int = 1, generation: int = 1, evicts: bool = False) -> Said:
    return Said("abort", number, (), token, generation, evicts=evicts)


def leader(token: int) -> Said:
    return Said("leader", token=token)
