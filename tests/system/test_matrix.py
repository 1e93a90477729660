"""The bus on each server, protocol, parser and event loop that it is promised for."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from esper.bus.embedded import find_server

ROOT = Path(__file__).resolve().parent.parent.parent
SUITE = [
    f"tests/test_{name}.py" for name in ("bus_inbox", "bus_settlement", "bus_tail", "bus_trim", "bus_faults", "serve")
]
ON_PATH = shutil.which("redis-server")
WITH_HIREDIS = (
    "import sys, redis.utils, pytest; assert redis.utils.HIREDIS_AVAILABLE; sys.exit(pytest.main(sys.argv[1:]))"
)
WITHOUT = (
    "import sys; sys.modules['hiredis'] = None\n"
    "import redis.utils, pytest; assert not redis.utils.HIREDIS_AVAILABLE; sys.exit(pytest.main(sys.argv[1:]))"
)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("server", ["embedded", "on PATH"])
@pytest.mark.parametrize(
    ("resp", "start", "loop"),
    # Every pair of values meets at least once.
    [
        ("2", WITHOUT, "uvloop"),
        ("3", WITH_HIREDIS, "uvloop"),
        ("3", WITHOUT, "asyncio"),
        ("2", WITH_HIREDIS, "asyncio"),
    ],
    ids=["RESP2-pure-uvloop", "RESP3-hiredis-uvloop", "RESP3-pure-asyncio", "RESP2-hiredis-asyncio"],
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
