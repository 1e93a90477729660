"""What tests of the wire begin with: one run's keys, a clock that stands still, a command, a sealer and an opener."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from esper.errors import RefusedError
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Domain, Role
from esper.leyline.replay import ReplayGuard
from esper.leyline.seal import Opener, Sealer

NOW_MS = 1_800_000_000_000
NOW_NS = NOW_MS * 1_000_000
ENTRY = f"{NOW_MS}-0"
RUN = "digits-0a1b2c3d"
MASTER = MasterKeyring.new(NOW_NS)
CONTROLLER = MASTER.derive(RUN, [Role.CONTROLLER, Role.OPTIMIZER])
WORKER = MASTER.derive(RUN, [Role.WORKER])
COORDINATOR = MASTER.derive(RUN, [Role.COORDINATOR])


def command(command_id: str = "c1") -> pb.AdaptationCommand:
    """A command that passes every check."""
    return pb.AdaptationCommand(
        version=1,
        command_id=command_id,
        command_type=pb.CommandType.COMMAND_SEED,
        seed_command=pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL),
    )


def controller(at_ns: int = NOW_NS) -> Sealer:
    """Seals commands; its clock stands still."""
    return Sealer(CONTROLLER, Role.CONTROLLER, "controller-0", clock_ns=lambda: at_ns)


def worker_opener(
    name: str = "worker-0", accept: Collection[Domain] = (Domain.COMMAND,), guard: ReplayGuard | None = None
) -> Opener:
    """Opens as a worker does."""
    return Opener(WORKER, name=name, guard=ReplayGuard() if guard is None else guard, accept=accept)


def refusal(opener: Opener, data: bytes, entry_id: str = ENTRY, now_ms: int = NOW_MS) -> str:
    """The name of the reason for which sealed bytes are refused."""
    with pytest.raises(RefusedError) as refused:
        opener.open(data, entry_id, now_ms)
    return pb.ReasonCode.Name(refused.value.reason)
