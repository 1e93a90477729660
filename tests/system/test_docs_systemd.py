"""What docs/deploy.md has an administrator type for systemd, below a folder that stands for the root."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from esper.leyline.keys.keyring import RoleKeyring
from tests.deploy_kit import DEPLOY, ROOT
from tests.pages import typed_by

SERVICES = sorted((DEPLOY / "systemd").glob("*.service"))
RUN = "digits-00c0ffee"
INSTANCES = {"esper-run@": "digits", "esper-regional@": "r0", "esper-trainer@": "0"}
ENABLED = {"esper-run@digits", "esper-coordinator", "esper-global", "esper-regional@r0", "esper-trainer@0"}


def words(text: str, root: Path) -> str:
    """The same for a root elsewhere, and for whoever runs the tests in place of the user that is made there."""
    moved = text.replace("/etc/", f"{root}/etc/")
    ours = re.sub(
        "(-g|-o) esper", lambda found: f"{found[1]} {os.getgid() if found[1] == '-g' else os.getuid()}", moved
    )
    ours = ours.replace("chown esper:esper", f"chown {os.getuid()}:{os.getgid()}")
    return ours.replace("systemd-sysusers\n", f"systemd-sysusers --root={root}\n").replace(
        "systemctl ", f"systemctl --root={root} "
    )


@pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd is not installed")
def test_typed_as_they_stand_the_steps_put_in_place_all_that_the_units_read(tmp_path: Path) -> None:
    root, place = tmp_path / "root", tmp_path / "clone"
    (root / "etc" / "redis" / "acl").mkdir(parents=True)
    place.mkdir()
    (place / "deploy").symlink_to(DEPLOY)
    shutil.copy(ROOT / "examples" / "run.toml", place)
    script = "".join(block.text for block in typed_by("tests/system/test_docs_systemd.py"))

    typed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", words(script, root)],
        cwd=place,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=200,
    )

    assert typed.returncode == 0, typed.stderr
    assert "esper:" in (root / "etc" / "passwd").read_text()
    units = root / "etc" / "systemd" / "system"
    assert {path.name.removesuffix(".service") for path in units.glob("*.wants/*")} == ENABLED
    assert {path.name for path in SERVICES} <= {path.name for path in units.iterdir()}
    assert f"ESPER_RUN={RUN}" in (root / "etc" / "esper" / "run.env").read_text()
    for path in SERVICES:
        for file in read_by(path):
            found = root / file.removeprefix("/")
            assert found.stat().st_mode & 0o007 == 0, found
            if found.suffix == ".json":
                assert RoleKeyring.load(found).run_id == RUN


def read_by(unit: Path) -> list[str]:
    """Files that it needs, and of those that it may have the one of its Redis user."""
    lines = [line for line in unit.read_text().splitlines() if not line.startswith("#")]
    text = "\n".join(lines).replace("%i", INSTANCES.get(unit.stem, ""))
    return [file for file in re.findall(r"[= -](/etc/\S+)", text) if "/trainer-" not in file]  # which need not be there
