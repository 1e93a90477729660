"""A trainer signs its checkpoints with the keys that its file holds by then, so that they can be resumed from."""

from __future__ import annotations

import time
from pathlib import Path

from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.kinds import Role
from tests.seed_kit import new_host
from tests.session_kit import UNSTEERED, joined, train


def test_a_checkpoint_made_after_its_first_key_was_retired_is_resumed_from(tmp_path: Path) -> None:
    keyring, master = tmp_path / "worker.json", MasterKeyring.new(time.time_ns())
    master.derive(UNSTEERED, [Role.WORKER]).save(keyring)
    host = new_host()
    run = joined(tmp_path / "checkpoints", keyring, host)
    train(run, host, 3)

    master = master.rotate(time.time_ns(), overlap_s=0)
    master.derive(UNSTEERED, [Role.WORKER]).save(keyring)
    train(run, host, 4)

    assert joined(tmp_path / "checkpoints", keyring, new_host(), resume=True).step_number == 7
