"""Steers a live run: publish a command, await its receipts, follow what the run says of itself."""

from __future__ import annotations

import asyncio
import copy
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

from esper.bus import connect, durability as modes, names, tail
from esper.errors import CommandFailedError, RefusedError, SettingError
from esper.leyline import commands, contracts as pb
from esper.leyline.field_checks import chosen, milliseconds, optional, patience_s, text, whole
from esper.leyline.keys.keyring import RoleKeyring
from esper.leyline.kinds import Domain
from esper.leyline.lifecycle import REASONS
from esper.leyline.seal import Opened, Opener
from esper.runtime import access
from esper.runtime.ending import end
from esper.runtime.watching.dispatch import Dispatch
from esper.runtime.watching.liveness import Workers, complete, seed_states
from esper.runtime.watching.observer import STAGES, NotSeenError, Observer, Refused
from esper.runtime.watching.receipts import Ledger, Receipt

TIERS = {
    **{"worker": "telemetry", "telemetry": "telemetry", "region": "regional", "regional": "regional"},
    **{"global": "global", "receipts": "receipts", "state": "state"},
}
"""By name: its stream. Two of them go by two names each."""
REGIONAL = frozenset(stream.name for stream in names.STREAMS if stream.regional)
__all__ = ["TIERS", "Controller", "Receipt"]

PATIENCE_S = 30.0
_SAID = frozenset(Domain) - {Domain.COMMAND, Domain.OPTIMIZER, Domain.VOTE}
_POSITION = re.compile(r"\$|\d{1,19}(-\d{1,19})?")
_Op = pb.SeedOperation
_Opt = pb.OptimizerCommandType


class Controller:
    """One controller of one run, made by `connect`. A method named after an operation returns once it is published."""

    def __init__(self, run_id: str, dispatch: Dispatch, observer: Observer, ledger: Ledger) -> None:
        self.run_id, self.observer = run_id, observer
        self._dispatch, self._ledger, self._timeout_ms = dispatch, ledger, 0
        self._heartbeats = names.key(run_id, "heartbeats")

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        run: str | None = None,
        *,
        redis_url: str | None = None,
        keyring: Path | str | None = None,
        name: str = "controller",
        durability: str | None = None,
    ) -> AsyncIterator[Controller]:
        """Join a live run by name or id; what is not given comes from ESPER_ RUN, REDIS_URL, KEYRING and DURABILITY.

        In `durable` mode a command counts as published once Redis has it on disk or on all replicas.
        """
        text("name", name)
        wanted = modes.chosen(optional("durability", durability) or os.environ.get("ESPER_DURABILITY", ""))
        found = await access.find(run, redis_url, keyring)
        receipts = names.key(found.run_id, "receipts")
        async with AsyncExitStack() as stack:
            reader = await stack.enter_async_context(connect.reader(found.redis_url))
            writer = await stack.enter_async_context(connect.writer(found.redis_url))
            await stack.enter_async_context(found.kept_current())
            publisher = modes.publisher(writer, await modes.admit(writer, wanted), wanted)
            ledger = Ledger()
            observer = await observing(found.keyring, name, reader, writer, partial(_note_unopened, ledger, receipts))
            since = await observer.position(receipts)  # before anything is published, so that no answer is missed
            reading = asyncio.create_task(_read_receipts(observer, receipts, since, ledger))
            reading.add_done_callback(ledger.close)  # what ends the reading is raised where someone waits for an answer
            stack.push_async_callback(end, [reading])
            dispatch = Dispatch(found.run_id, found.keyring, name, publisher.add, patience_s=PATIENCE_S)
            yield cls(found.run_id, dispatch, observer, ledger)

    def within(self, timeout_s: float) -> Controller:
        """This controller, whose commands are void (past_deadline) if they are judged later than this from sending.

        0: no end. The deadline is this machine's time, and the judge reads Redis's: it is good to within their skew.
        """
        bounded = copy.copy(self)
        bounded._timeout_ms = milliseconds("timeout_s", timeout_s)
        return bounded

    # --- seeds -------------------------------------------------------------------------------------------------------

    async def germinate(self, seed: str, *, site: str, blueprint: str, **parameters: float) -> Receipt:
        """Put a new seed at a site, without effect on the model yet (G0). auto=1: a policy advances it."""
        return await self.publish(commands.germinate(seed, site, blueprint, parameters))

    async def start_training(self, seed: str, **parameters: float) -> Receipt:
        """Let a germinated seed learn, unseen by the model. auto=1 hands it to its policy, auto=0 takes it back."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_START_TRAINING, parameters))

    async def start_grafting(
        self, seed: str, *, steps: int = 100, alpha: float = 1.0, curve: str = "cosine", **parameters: float
    ) -> Receipt:
        """Blend a trained seed into the model over `steps` steps (G1). auto as in start_training."""
        return await self.publish(commands.blend(seed, _Op.SEED_OP_START_GRAFTING, steps, alpha, curve, parameters))

    async def set_alpha_target(self, seed: str, *, alpha: float, steps: int = 100, curve: str = "cosine") -> Receipt:
        """Move a blended seed's weight to another value."""
        return await self.publish(commands.blend(seed, _Op.SEED_OP_SET_ALPHA_TARGET, steps, alpha, curve))

    async def stabilize(self, seed: str, **parameters: float) -> Receipt:
        """End the blending, alpha being at its target (G2). auto as in start_training."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_STABILIZE, parameters))

    async def evaluate(self, seed: str, **parameters: float) -> Receipt:
        """Put a seed on probation (G3). auto as in start_training."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_EVALUATE, parameters))

    async def fossilize(self, seed: str, **parameters: float) -> Receipt:
        """Make a seed part of the model, if the held-out loss shows its worth (G4). auto as in start_training."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_FOSSILIZE, parameters))

    async def cull(self, seed: str) -> Receipt:
        """Remove a seed and embargo its slot."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_CULL))

    async def cancel(self, seed: str) -> Receipt:
        """Remove a seed that has not been blended yet."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_CANCEL))

    async def reset(self, seed: str, **parameters: float) -> Receipt:
        """Free a slot whose embargo has ended (G5). auto as in start_training."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_RESET, parameters))

    async def terminate(self, seed: str) -> Receipt:
        """Close a dormant or fossilized slot for good."""
        return await self.publish(commands.seed(seed, _Op.SEED_OP_TERMINATE))

    # --- the run -----------------------------------------------------------------------------------------------------

    async def adjust_optimizer(
        self, optimizer_id: str = "host", *, release: Sequence[str] = (), **hyperparameters: float
    ) -> Receipt:
        """Set hyperparameters that win over the user's scheduler until their names are released."""
        return await self.publish(commands.adjust(optimizer_id, hyperparameters, release))

    async def circuit_breaker(self, seed: str, *, state: str = "open", rationale: str = "") -> Receipt:
        """Quarantine a seed (open), or forget its violations (closed)."""
        return await self.publish(commands.breaker(seed, state, rationale))

    async def pause(self, seed: str | None = None) -> Receipt:
        """Hold every rank before the same step, or one seed."""
        return await self.publish(commands.pause(optional("seed", seed), resume=False))

    async def resume(self, seed: str | None = None) -> Receipt:
        """Let a paused run, or a paused seed, go on."""
        return await self.publish(commands.pause(optional("seed", seed), resume=True))

    async def emergency(self, *, level: str = "halt", reason: str = "") -> Receipt:
        """Tell every rank of an emergency; `halt` pauses the run."""
        return await self.publish(commands.emergency(level, reason))

    async def rollback(self, *, step: int = 0, reason: str = "") -> Receipt:
        """Go back to the snapshot of a step; 0: the newest that all ranks hold."""
        return await self.publish(commands.rollback(step, reason))

    async def structural_pruning(
        self, *, step: int = 0, phase: str = "validation_only", **safety_constraints: float
    ) -> Receipt:
        """Ask which channels the model could do without; the phases active and disabled switch pruning on or off."""
        return await self.publish(commands.pruning(step, safety_constraints, phase))

    async def importance(self, timeout_s: float = 60.0) -> list[pb.StructuralPruningRequest]:
        """What each channel and head is worth to the run, in parts as they come. TimeoutError when late."""
        command, timeout_s = commands.pruning(0, {}), patience_s("timeout_s", timeout_s)
        since = await self.observer.position(self._heartbeats)
        parts: dict[int, pb.StructuralPruningRequest] = {}
        async with asyncio.timeout(timeout_s):
            await (await self.publish(command)).applied(timeout_s)
            async with aclosing(self.observer.messages(self._heartbeats, since)) as beats:
                async for opened in beats:
                    told = opened.message.pruning if isinstance(opened.message, pb.Heartbeat) else None
                    if told is not None and told.request_id == command.structural_pruning.request_id:
                        parts[told.part] = told
                        if len(parts) == told.num_parts:
                            break
        return [parts[number] for number in sorted(parts)]

    async def prune(self, masks: pb.StructuralPruningResponse) -> Receipt:
        """Put masks in force (`esper.kasmina.pruning.plan` makes some), or, if they say so, lift the last ones."""
        return await self.publish(commands.pruning_masks(masks))

    # --- optimizers --------------------------------------------------------------------------------------------------

    async def initialize_host(self, *, expected_step: int = 0, **hyperparameters: float) -> Receipt:
        """Adopt the optimizer that the training script made."""
        kind = _Opt.OPTIMIZER_COMMAND_INITIALIZE_HOST
        command = commands.optimizer(kind, "host", hyperparameters=hyperparameters, expected_step=expected_step)
        return await self.publish(command)

    async def create_seed_optimizer(
        self, seed: str, *, lr: float, expected_step: int = 0, **hyperparameters: float
    ) -> Receipt:
        """Give a germinated seed an optimizer of its own: AdamW, SGD with momentum, 8-bit AdamW with state_bits=8."""
        kind, values = _Opt.OPTIMIZER_COMMAND_CREATE_SEED, {"lr": lr, **hyperparameters}
        return await self.publish(
            commands.optimizer(kind, text("seed", seed), hyperparameters=values, expected_step=expected_step)
        )

    async def grant_steps(
        self, optimizer_id: str, *, num_steps: int = 0, expected_step: int = 0, grad_clip_norm: float = 0.0
    ) -> Receipt:
        """Let an optimizer step only inside a lease; 0 steps: without end."""
        return await self.publish(commands.lease(optimizer_id, num_steps, expected_step, grad_clip_norm))

    async def reset_optimizer_state(self, optimizer_id: str, *, generation: int = 0, expected_step: int = 0) -> Receipt:
        """Forget an optimizer's moments."""
        kind = _Opt.OPTIMIZER_COMMAND_RESET_STATE
        command = commands.optimizer(kind, optimizer_id, generation=generation, expected_step=expected_step)
        return await self.publish(command)

    async def register_teacher(self, *, digest: str) -> Receipt:
        """Name the model to distil from, by the sha256 of its safetensors file (64 hex digits)."""
        kind = _Opt.OPTIMIZER_COMMAND_REGISTER_TEACHER
        return await self.publish(commands.optimizer(kind, "host", teacher_digest=digest))

    # --- publishing, waiting, following ------------------------------------------------------------------------------

    async def publish(self, command: commands.Command) -> Receipt:
        """Seal a command and put it on its stream. Where Redis is away the same bytes are added again, for up to 30 s.

        Then LostError: the command may be there all the same, and one that is published anew may take effect beside it.
        Look first at what `telemetry("receipts", since)` says of this `command_id`, or at the run itself (`status`).
        """
        if not isinstance(command, commands.Command):
            raise SettingError("command", command, "an AdaptationCommand or an OptimizerCommand")
        added = await self._dispatch.send(command, self._timeout_ms)
        answers = self._ledger.claim(command.command_id, added.entry_id, added_again=added.again)
        return Receipt(answers, self._ledger, self._roster)

    async def persist(
        self,
        operation: Callable[..., Awaitable[Receipt]],
        *seed: str,
        attempts: int = 20,
        held_by: str = "gate_failed",
        timeout_s: float = 60.0,
        epoch_timeout_s: float = 600.0,
        **arguments: float | str,
    ) -> list[pb.CommandReceipt]:
        """Publish again after each epoch (NotSeenError if one takes longer) while only `held_by` stands in the way."""
        patience_s("timeout_s", timeout_s)
        patience_s("epoch_timeout_s", epoch_timeout_s)
        attempts_left = whole("attempts", attempts, least=1)
        chosen("held_by", held_by, REASONS)
        while True:
            receipt = await operation(*seed, **arguments)
            try:
                return await receipt.applied(timeout_s)
            except CommandFailedError as error:
                attempts_left -= 1
                if error.reason != held_by or receipt.ended_the_seed or not attempts_left:
                    raise
            await self.epochs(1, epoch_timeout_s)

    async def status(self) -> dict[str, pb.Heartbeat]:
        """The newest heartbeat of each worker, by name."""
        return (await self.observer.heard(self._heartbeats)).beats

    async def until(self, predicate: Callable[[Workers], bool], timeout_s: float = 60.0) -> Workers:
        """Return the first heartbeats, one of every rank, that the predicate holds for. NotSeenError when late.

        Of replicas: one of each that was heard of, but for those that have left or fallen silent while others go on.
        """
        workers: Workers = {}
        patience_s("timeout_s", timeout_s)
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.observer.changes(self._heartbeats)) as changes:
                async for workers in changes:
                    if complete(workers) and predicate(workers):
                        break
        except TimeoutError:
            raise NotSeenError(timeout_s, workers) from None
        return workers

    async def epochs(self, count: int, timeout_s: float = 60.0) -> Workers:
        """Return once every rank is `count` epochs on."""
        whole("count", count)
        now = await self.until(lambda _: True, timeout_s)
        goal = max(beat.epoch for beat in now.values()) + count
        return await self.until(lambda workers: all(beat.epoch >= goal for beat in workers.values()), timeout_s)

    async def reaches(self, seed: str, stage: str, timeout_s: float = 60.0) -> list[pb.SeedState]:
        """Return once every rank shows the seed at the stage: its states, one a rank."""
        text("seed", seed)
        wanted = chosen("stage", stage, STAGES)
        workers = await self.until(
            lambda workers: all(state.stage == wanted for state in seed_states(workers, seed)), timeout_s
        )
        return seed_states(workers, seed)

    async def telemetry(self, tier: str = "global", since: str = "$") -> AsyncGenerator[Opened, None]:
        """Opened messages of a tier as they come: frames (worker), aggregates (region, global), or receipts."""
        if not isinstance(since, str) or not _POSITION.fullmatch(since):
            raise SettingError("since", since, "an entry id such as 1700000000000-0, 0 for all, or $ for what comes")
        async with aclosing(self.observer.merged(dict.fromkeys(await self.streams(tier), since))) as messages:
            async for _, opened in messages:
                yield opened

    async def streams(self, tier: str) -> list[str]:
        """Keys of a tier's streams: one, or one for each region that a worker has been heard of in."""
        name = chosen("tier", tier, TIERS)
        if name not in REGIONAL:
            return [names.key(self.run_id, name)]
        await self.until(lambda _: True)
        workers = await self.status()  # also of those that have left
        return sorted({names.region_key(self.run_id, beat.region, name) for beat in workers.values()})

    async def _roster(self) -> list[str]:
        return sorted(await self.status())


async def observing(
    keyring: RoleKeyring, name: str, reader: connect.Redis, writer: connect.Redis, refused: Refused | None = None
) -> Observer:
    """An observer that opens whatever the keyring can, and hands what it does not open to `refused`."""
    clock = connect.ServerClock(names.key(keyring.run_id, "heartbeats"))
    await clock.look(writer)
    opener = Opener(keyring, name=name, guard=None, accept=_SAID)  # what it reads changes nothing: repeats are harmless
    return Observer(
        partial(tail.follow, reader),
        partial(tail.last, reader),  # the writer's socket timeout can swallow a cancellation
        lambda sealed, entry_id: opener.open(sealed, entry_id, clock.now_ms()),
        refused,
    )


def _note_unopened(ledger: Ledger, receipts: str, stream: str, entry_id: str, _: bytes, error: RefusedError) -> None:
    if stream == receipts:
        ledger.unopened(entry_id, error.detail)


async def _read_receipts(observer: Observer, stream: str, since: str, ledger: Ledger) -> None:
    async with aclosing(observer.messages(stream, since)) as messages:
        async for opened in messages:
            if isinstance(opened.message, pb.CommandReceipt):
                ledger.note(opened.message, opened.header.role)
