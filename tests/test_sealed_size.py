"""How many bytes a sealed message takes: the seeds ask for less than 280."""

from __future__ import annotations

import time

from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from esper.leyline.seal import Sealer


def test_a_sealed_system_state_of_the_validation_seeds_shape_takes_at_most_280_bytes() -> None:
    # Section 2.3 of the performance-validation seed, its metrics under names of at most 8 bytes.
    packet = pb.SystemStatePacket(
        version=1,
        current_epoch=5000,
        validation_accuracy=0.987,
        validation_loss=0.045,
        timestamp_ns=time.time_ns(),
        hardware_context=pb.HardwareContext(
            device_type="cuda", device_id="0", total_memory_gb=40.0, utilization_percent=85.0
        ),
        training_metrics={"loss": 0.045, "accuracy": 0.987, "lr": 0.001, "gradnorm": 1.23},
    )
    keys = MasterKeyring.new(time.time_ns()).derive("digits-0a1b2c3d", [Role.WORKER])

    sealed = Sealer(keys, Role.WORKER, "worker-0").seal(packet)

    assert len(packet.SerializeToString()) < len(sealed) <= 280
