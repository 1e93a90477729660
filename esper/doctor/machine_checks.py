"""What a machine should be like for a run: rules over facts."""

from __future__ import annotations

from math import ceil

from esper.doctor.facts import MachineFacts
from esper.runtime.operations.findings import Finding, Status, judged

MIB = 1 << 20
TORCH, PYTHON = (2, 13), (3, 11)
"""The oldest that pyproject.toml takes."""
SHM_BYTES = 256 * MIB
FILES_WARN, FILES_FAIL = 1024, 256


def machine_findings(facts: MachineFacts) -> list[Finding]:
    """One for each check, in the order of a reader's interest."""
    return [python(facts), torch(facts), threads(facts), shared_memory(facts), open_files(facts), clock(facts)]


def python(facts: MachineFacts) -> Finding:
    met = ".".join(map(str, facts.python))
    status: Status = "fail" if facts.python < PYTHON else "ok"
    return judged("python", met, "3.11 or newer", "make PYTHON=python3.11", status)


def torch(facts: MachineFacts) -> Finding:
    """Only processes that train need it."""
    numbers = [int(part) if part.isdigit() else 0 for part in facts.torch.split(".")[:2]]
    status: Status = "warn" if not facts.torch else "fail" if tuple(numbers) < TORCH else "ok"
    met, expected = facts.torch or "not installed", "2.13 or newer where models are trained"
    return judged("torch", met, expected, "pip install 'torch>=2.13'", status)


def threads(facts: MachineFacts) -> Finding:
    """More threads than cores wait for one another in every operation."""
    granted = facts.cores if facts.quota is None else min(facts.cores, ceil(facts.quota))
    told = facts.threads.split(",")[0]
    used = int(told) if told.isdecimal() else facts.cores
    said = f"OMP_NUM_THREADS={facts.threads}" if facts.threads else f"{used}, as OMP_NUM_THREADS is not set"
    return judged(
        "threads",
        f"{said}; {granted} cores are granted",
        "no more threads in all ranks of a machine than cores",
        f"export OMP_NUM_THREADS={granted}, or {granted} divided by the ranks of this machine",
        "warn" if used > granted else "ok",
    )


def shared_memory(facts: MachineFacts) -> Finding:
    """Workers of a DataLoader hand over their batches there."""
    free = facts.shm_free_bytes
    return judged(
        "shared memory",
        "no /dev/shm" if free is None else f"{free // MIB} MiB free in /dev/shm",
        f"{SHM_BYTES // MIB} MiB for a DataLoader with workers",
        "docker run --shm-size=1g (compose: shm_size), or DataLoader(num_workers=0)",
        "ok" if free is not None and free >= SHM_BYTES else "warn",
    )


def open_files(facts: MachineFacts) -> Finding:
    limit = facts.open_files
    unbounded = limit < 0
    status: Status = "ok" if unbounded or limit >= FILES_WARN else "warn" if limit >= FILES_FAIL else "fail"
    return judged(
        "open files",
        "no limit" if unbounded else f"limit of {limit}",
        f"{FILES_WARN} or more",
        f"ulimit -n {FILES_WARN} (systemd: LimitNOFILE={FILES_WARN})",
        status,
    )


def clock(facts: MachineFacts) -> Finding:
    """What counts for seals is the difference to Redis, which is checked apart."""
    met = {True: "kept right", False: "not synchronised", None: "the kernel does not tell"}[facts.clock_synced]
    return judged(
        "clock",
        met,
        "kept right by NTP",
        "timedatectl set-ntp true, or start chrony; in a container: on its host",
        "ok" if facts.clock_synced else "warn",
    )
