"""Ranks of a process group that run different code are refused as they attach, with both versions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch.distributed as dist

import esper
from esper import version
from esper.errors import SettingError, TrainingError
from esper.runtime.operations.figures import HealthMetrics
from esper.runtime.operations.health import Health
from esper.session import same_code
from tests.group_kit import said_by_all
from tests.seed_kit import new_host, optimizer_of
from tests.session_kit import train, unsteered

OTHER = "Esper 0.0.9 (0123456789ab)"
SILENT, WAITS = "says nothing", "waits for a second"


def attach(rank: int, code: str, folder: Path) -> str:
    """How far a rank's process came."""
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=2)
    if code == SILENT:
        dist.new_group()  # as attach() did before it compared code
        return "met"
    return attached(code)


def attached(code: str) -> str:
    if code == WAITS:
        same_code.PATIENCE = timedelta(seconds=1)
    elif code:
        same_code.running = lambda: code  # type: ignore[assignment]
    host = new_host()
    try:
        run = unsteered(host, optimizer_of("sgd", list(host.parameters())), "body")
        train(run, host, 1)
    except (SettingError, TrainingError) as error:
        return str(error)
    return "trained"


def both(codes: tuple[str, str], folder: Path) -> list[str]:
    return said_by_all([partial(attach, rank, code, folder) for rank, code in enumerate(codes)], folder)


def test_ranks_of_two_versions_are_refused_by_name_and_those_of_one_train(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    assert both(("", ""), tmp_path / "one") == ["trained"] * 2

    mine = version.running()
    assert both(("", OTHER), tmp_path / "two") == [
        f"version is {mine!r}; expected that of rank 1, {OTHER}: a process group runs one",
        f"version is {OTHER!r}; expected that of rank 0, {mine}: a process group runs one",
    ]


def test_a_rank_of_code_that_does_not_say_what_it_is_is_named(tmp_path: Path) -> None:
    waited, _ = both((WAITS, SILENT), tmp_path)

    assert waited.startswith(f"rank 1 did not say within 1 s what code it runs, as {version.running()} does")


def test_code_that_is_not_installed_says_its_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])  # where no metadata of a package is found

    told = {metric.name: metric for metric in HealthMetrics(Health()).collect()}

    assert version.running.__wrapped__().startswith(f"Esper {esper.__version__} (")
    assert told["esper_process_info"].samples[0].labels["version"] == esper.__version__


def test_each_byte_of_what_ranks_agree_by_counts(tmp_path: Path) -> None:
    root = Path(version.__file__).parent
    for package in version.PACKAGES:
        shutil.copytree(root / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    assert version.running().endswith(f"({version._digest(tmp_path)[:12]})")

    changed = tmp_path / "tolaria" / "reduce.py"
    changed.write_bytes(changed.read_bytes() + b"#")

    assert not version.running().endswith(f"({version._digest(tmp_path)[:12]})")


def test_code_within_an_archive_is_told_apart_as_code_in_a_folder_is(tmp_path: Path) -> None:
    root = Path(version.__file__).parent
    with ZipFile(tmp_path / "esper.zip", "w") as archive:
        for path in [root / "__init__.py", root / "version.py", *(root / "kernels").glob("*.py")]:
            archive.write(path, path.relative_to(root.parent))
        for package in set(version.PACKAGES) - {"kernels"}:
            archive.writestr(f"esper/{package}/__init__.py", "")
    shutil.unpack_archive(tmp_path / "esper.zip", tmp_path / "folder")

    script = "import sys; sys.path.insert(0, sys.argv[1]); from esper import version; print(version.running())"
    told = [
        subprocess.run([sys.executable, "-I", "-c", script, str(tmp_path / each)], check=True, capture_output=True)
        for each in ("esper.zip", "folder")
    ]

    assert (
        told[0].stdout
        == told[1].stdout
        == f"Esper {version.__version__} ({version._digest(tmp_path / 'folder/esper')[:12]})\n".encode()
    )


def test_an_editor_s_lock_on_a_module_is_none(tmp_path: Path) -> None:
    for package in version.PACKAGES:
        (tmp_path / package).mkdir()
    nothing = version._digest(tmp_path)

    (tmp_path / "session" / ".#attach.py").symlink_to("somebody@somewhere.4711:1795400000")

    assert version._digest(tmp_path) == nothing
