"""A server of 7.0 or newer for tests of what the embedded one may be too old for, or was built without."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from esper.bus.acl import enforceable


def newer_server() -> Path:
    """The binary on PATH; the test is skipped where there is none that knows selectors."""
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("no redis-server on PATH; .ci/run installs Debian's")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\d+\.\d+\.\d+)", told)
    if version is None or not enforceable(version[1]):
        pytest.skip(f"the redis-server on PATH is too old: {told.strip()}")
    return Path(found)
