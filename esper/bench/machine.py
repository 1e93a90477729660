"""Which machine a figure is from: what else would have to be equal for it to be the same figure."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from esper.bench.device import DEVICE
from esper.runtime.processor import processor

HERE = Path(__file__).resolve().parent
PINS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_LAUNCH_BLOCKING", DEVICE)
PASSING = frozenset({"threads", "commit", "dirty", "load_start", "load_end"})
"""What changes from run to run on one machine, and so is no part of its key."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A fingerprint. `threads`: torch's, 0 where nothing of the run loaded torch. `load`: of the last minute."""

    cpu: str
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]
    kernel: str
    python: str
    torch: str
    governor: str
    """What sets the processor's clock ("performance", "schedutil"); empty: the machine doesn't say."""
    pins: dict[str, str]
    """Variables that change what is measured, as far as they are set."""
    threads: int
    commit: str
    dirty: bool
    load_start: float
    load_end: float

    @property
    def key(self) -> str:
        """Equal for runs whose figures may be compared: without the commit, and without what passes."""
        lasting = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in PASSING}
        lasting["memory_bytes"] = round(self.memory_bytes / 2**30)  # a kernel's own share differs a little
        return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:16]

    def as_fields(self) -> dict[str, object]:
        return {**asdict(self), "key": self.key}


def this_machine(load_start: float | None = None) -> Machine:
    """Read at the end of a run, as torch's threads are known only once something has loaded it."""
    load = os.getloadavg()[0]
    commit, dirty = revision(HERE)
    return Machine(
        cpu=processor(),
        cores=num_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        gpus=gpus(),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        torch=torch_version(),
        governor=_text(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        pins={name: os.environ[name] for name in PINS if name in os.environ},
        threads=sys.modules["torch"].get_num_threads() if "torch" in sys.modules else 0,
        commit=commit,
        dirty=dirty,
        load_start=load if load_start is None else load_start,
        load_end=load,
    )


def num_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> tuple[str, ...]:
    """Models of NVIDIA's driver, which says them without torch."""
    files = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return tuple(_field(file, "Model") for file in files)


def torch_version() -> str:
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


def revision(folder: Path) -> tuple[str, bool]:
    """The commit checked out around this folder, and whether files differ from it; empty where there is none."""
    try:
        commit = git(folder, "rev-parse", "HEAD")
        return commit, bool(git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return "", False


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=20).stdout.strip()


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _field(file: Path, name: str) -> str:
    """Of a file of `name: value` lines; empty where it isn't there."""
    values = (line.partition(":") for line in _text(file).splitlines())
    return next((value.strip() for field, _, value in values if field.strip() == name), "")
