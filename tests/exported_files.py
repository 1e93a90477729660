"""Files of torch.export (.pt2) that run code where torch loads them."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from functools import cache
from pathlib import Path

import torch
from torch import nn

from tests.hostile_files import Trap, archive, torch_file

WEIGHTS = "archive/data/weights/"


@cache
def sound() -> dict[str, bytes]:
    """Name -> content of what torch.export saves of a layer; takes two seconds."""
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        torch.export.save(torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),)), held)
    with zipfile.ZipFile(held) as saved:
        return {name: saved.read(name) for name in saved.namelist()}


def exported(sentinel: Path) -> dict[str, bytes]:
    """One with a trap as its sample inputs, one with it for a weight that is said to be a pickle."""
    trap, files = torch_file(Trap(sentinel)), sound()
    config = json.loads(files[WEIGHTS + "model_weights_config.json"])
    config["config"]["weight"]["use_pickle"] = True
    pickled = {
        WEIGHTS + "model_weights_config.json": json.dumps(config).encode(),
        WEIGHTS + config["config"]["weight"]["path_name"]: trap,
    }
    return {
        "sample inputs": archive(files | {"archive/data/sample_inputs/model.pt": trap}),
        "a pickled weight": archive(files | pickled),
    }
