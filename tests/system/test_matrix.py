"""The bus on each server, protocol, parser and event loop that it is promised for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from esper.bus.embedded import find_server

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = ("bus_inbox", "bus_settlement", "bus_tail", "bus_trim", "bus_faults", "serve", "durability", "beside")
SUITE = [f"tests/test_{name}.py" for name in NAMES]
ON_PATH = shutil.which("redis-server")
WITH_HIREDIS = (
    "import sys, redis.utils, pytest; assert redis.utils.HIREDIS_AVAILABLE; sys.exit(pytest.main(sys.argv[1:]))"
)
WITHOUT = (
    "import sys; sys.modules['hiredis'] = None\n"
    "import redis.utils, pytest; assert not redis.utils.HIREDIS_AVAILABLE; sys.exit(pytest.main(sys.argv[1:]))"
)


@pytest.mark.parametrize(
    ("server", "resp", "start", "loop"),
    # With what `make test` runs (embedded, RESP2, hiredis, asyncio) every value meets every other one at least once.
    [
        pytest.param("embedded", "3", WITH_HIREDIS, "uvloop", id="embedded-RESP3-hiredis-uvloop"),
        pytest.param("embedded", "2", WITHOUT, "uvloop", id="embedded-RESP2-pure-uvloop"),
        pytest.param("on PATH", "2", WITH_HIREDIS, "uvloop", id="on_PATH-RESP2-hiredis-uvloop"),
        pytest.param("on PATH", "3", WITHOUT, "asyncio", id="on_PATH-RESP3-pure-asyncio"),
    ],
)
def test_the_bus_keeps_its_promises_on(server: str, resp: str, start: str, loop: str) -> None:
    if server == "on PATH" and ON_PATH is None:
        pytest.skip("no redis-server on PATH; .ci/run installs Debian's")
    binary = str(find_server()) if server == "embedded" else str(ON_PATH)
    options = ["--redis-server", binary, "--resp", resp, "--loop", loop, "-p", "no:cacheprovider"]

    ran = subprocess.run(
        [sys.executable, "-c", start, *options, *SUITE], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
