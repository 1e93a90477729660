"""What decides the bits that a process comes to, beside its code and its data."""

from __future__ import annotations

import os
import sys
from operator import attrgetter

import numpy as np
import torch

from esper.runtime.processor import processor

UNSET = "unset"
ENVIRONMENT = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE")
"""By these the libraries below torch choose how they multiply."""


def numerics() -> dict[str, str]:
    """By name, as they stand in this thread: a script may set some of them later."""
    return {
        "numpy": np.__version__,
        "processor": processor(),
        "default_dtype": str(torch.get_default_dtype()).removeprefix("torch."),
        "float32_matmul_precision": _float32_matmul_precision(),
        "deterministic_algorithms": _deterministic_algorithms(),
        "flush_denormal": _flush_denormal(),
        "PYTHONHASHSEED": "random" if sys.flags.ignore_environment else os.environ.get("PYTHONHASHSEED") or "random",
        **{name: os.environ.get(name) or UNSET for name in ENVIRONMENT},
    }


def _float32_matmul_precision() -> str:
    """That of each backend where they were set apart: torch refuses to say one for all then."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        told = attrgetter("matmul.fp32_precision")
        return f"cuda {told(torch.backends.cuda)}, mkldnn {told(torch.backends.mkldnn)}"


def _deterministic_algorithms() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _flush_denormal() -> str:
    """Torch tells no one: what becomes of a number shows it."""
    denormal = torch.tensor(1e-40, dtype=torch.float32, device="cpu")
    return "off" if denormal.mul(1.0).item() else "on"
