"""The keys of a simulated run, which are the same in every world, and messages that pass every check."""

from __future__ import annotations

from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKey, MasterKeyring, Validity
from esper.leyline.kinds import Role
from tests.simulation.record import RUN

MASTER = MasterKeyring([MasterKey(Validity(1, 0, 2**63), bytes(range(32)))])
CONTROLLER = MASTER.derive(RUN, [Role.CONTROLLER])
WORKER = MASTER.derive(RUN, [Role.WORKER])
COORDINATOR = MASTER.derive(RUN, [Role.COORDINATOR])


def job(number: int) -> pb.Heartbeat:
    """What someone must take up once."""
    return pb.Heartbeat(
        version=1, worker="worker-0", incarnation=1, rank=0, world_size=1, region="local", step=number, time_ns=1
    )


def order(number: int) -> pb.AdaptationCommand:
    """What every rank must carry out."""
    return pb.AdaptationCommand(
        version=1,
        command_id=f"c{number}",
        command_type=pb.CommandType.COMMAND_SEED,
        seed_command=pb.SeedCommand(seed_id="s0", operation=pb.SeedOperation.SEED_OP_CULL),
    )
