"""What a rank trains on, and how much of it is in use."""

from __future__ import annotations

import os
import platform

import torch

from esper.leyline import contracts as pb

_GB = 1e9


def hardware_context(device: torch.device) -> pb.HardwareContext:
    """Of the device that holds the model; waits for nothing. What nobody can tell is 0."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        major, minor = torch.cuda.get_device_capability(device)
        return pb.HardwareContext(
            device_type="cuda",
            device_id=torch.cuda.get_device_name(device)[:64],
            total_memory_gb=total / _GB,
            available_memory_gb=free / _GB,
            compute_capability=f"{major}.{minor}",
        )
    page = os.sysconf("SC_PAGE_SIZE")
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return pb.HardwareContext(
        device_type=device.type,
        device_id=platform.machine(),
        total_memory_gb=os.sysconf("SC_PHYS_PAGES") * page / _GB,
        available_memory_gb=os.sysconf("SC_AVPHYS_PAGES") * page / _GB,
        utilization_percent=min(100.0, 100.0 * busy),
        compute_capability=torch.backends.cpu.get_cpu_capability(),
    )
