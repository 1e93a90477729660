"""An attach() that is refused after the runtime was started leaves none behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import esper
from esper.errors import SettingError
from tests.bus_kit import sockets
from tests.seed_kit import new_host, optimizer_of
from tests.system.scripted import Script


def test_the_runtime_ends_with_the_error(redis_url: str, run_id: str, tmp_path: Path) -> None:
    host = new_host()
    optimizer = optimizer_of("sgd", list(host.parameters()))
    environment = Script(redis_url, run_id, tmp_path).environment()
    before = sockets()

    with pytest.raises(SettingError, match="checkpoints is not set"):
        esper.attach(host, optimizer=optimizer, sites=["body"], environment=environment, checkpoint_every=10)

    assert sockets() == before
