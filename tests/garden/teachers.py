"""Teachers of every kind in a folder: sound ones, broken and forged files, and models that fail while they teach."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from esper.kasmina.kd import SeedDistillation
from esper.kernels.teacher.memory import CPU_ALLOCATOR, num_bytes
from esper.kernels.teacher.settings import TeacherSettings
from esper.session import Session
from esper.tolaria.teachers.source import TeacherSource
from tests.garden.hosts import Kind, first_tensor
from tests.garden.wide import Wide
from tests.garden.wrong import Wrong

SHAPELESS = ("", "zz", "../../etc/passwd", "0" * 64)
"""Digests without a file."""
OWN = "the teacher's own"
AT_LOGITS = {"layers": "3", "tied": "head", "recurs": "head", "encoder": "1", "normed": "head", "parts": "head"}
"""By host, a site whose output are the logits."""


class Moody(nn.Module):
    """A model that fails for some batches, always the same ones."""

    def __init__(self, inner: nn.Module, mood: str) -> None:
        super().__init__()
        self.inner, self.mood = inner, mood

    def forward(self, x: Tensor) -> Any:
        output = self.inner(x)
        total = float(x.detach().double().sum())
        if total != total or int(abs(total) * 1e3) % 4:
            return output
        if self.mood == "raises":
            raise ValueError(OWN)
        if self.mood == "has no memory":
            raise RuntimeError(f"{CPU_ALLOCATOR}: can't allocate memory: you tried to allocate 1 bytes")
        return first_tensor(output) * float("inf") if self.mood == "overflows" else output


class Faculty:
    """What a life distils from: files of a folder, and how they answer."""

    def __init__(self, kind: Kind, wide: Wide, folder: Path, host: nn.Module) -> None:
        self.kind, self.wide, self.folder = kind, wide, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._host = host
        made = self._made()
        self.num_bytes = num_bytes([*made.parameters(), *made.buffers()])
        state = {name: each.clone().contiguous() for name, each in made.state_dict().items()}
        floats = [name for name, each in state.items() if each.is_floating_point()]
        self._dtype = state[floats[0]].dtype
        self.digests = [self._put(save(state)), self._put(save({**state, floats[0]: state[floats[0]] * 0.5}))]
        self.bad = [
            *SHAPELESS,
            self._put(save({**state, floats[-1]: state[floats[-1]] * float("nan")})),
            self._put(save({name: each * 1e30 if name in floats else each for name, each in state.items()})),
            self._put(save({name: state[name] for name in [*state][1:]})),
            self._put(save(state)[:-3]),
            self._put(b"\x80\x04no teacher at all"),
            self._put(save(state), name="f" * 64),
        ]

    def source(self) -> TeacherSource:
        wide, sample = self.wide, self.kind.batch(-8)
        sample = sample.to(self._dtype) if sample.is_floating_point() else sample
        budget = int(self.num_bytes * wide.budget)
        settings = TeacherSettings(mode=wide.mode, budget_bytes=budget)  # type: ignore[arg-type]
        factory: Callable[[], nn.Module] = self._made
        match wide.mood:
            case "is built by a broken factory":
                factory = _broken
            case "is the host itself":
                factory = partial(Moody, self._host, "")
        return TeacherSource(self.folder, factory, settings, sample=sample if wide.is_tried else None)

    def _made(self) -> nn.Module:
        return Moody(self.kind.make(), self.wide.mood)

    def _put(self, content: bytes, name: str = "") -> str:
        name = name or hashlib.sha256(content).hexdigest()
        (self.folder / f"{name}.safetensors").write_bytes(content)
        return name


def _broken() -> nn.Module:
    raise KeyError("no architecture")


class Lesson:
    """What a script adds to its loss: of the model's output, of a seed's at a site, or both."""

    def __init__(self, kind_name: str, wide: Wide, run: Session) -> None:
        self.run, self.wide = run, wide
        site = AT_LOGITS.get(kind_name, "")
        teaches_seed = wide.teaches != "model" and site in run.executor.sites
        self.of_seed = SeedDistillation(run.status.model, run.executor, site) if teaches_seed else None

    @property
    def touches(self) -> bool:
        """Whether the host's own gradient may be another for it."""
        is_raised = self.wide.mood == "raises"  # the step ends there
        return self._teachers.current is not None and (self.wide.teaches != "seed" or is_raised)

    @property
    def _teachers(self) -> Any:
        assert self.run.teachers is not None
        return self.run.teachers

    def __call__(self, output: Tensor, batch: Tensor) -> Tensor:
        """0 without a teacher."""
        given = batch.detach().to(self._dtype) if batch.is_floating_point() else batch.detach()
        added = output.new_zeros(())
        if not output.numel():
            return added
        if self.wide.teaches != "seed":
            added = added + self._teachers.distil(output, given)
        if self.of_seed is not None:
            added = added + self.of_seed.loss(self._teachers.predict(given))
        if bool(output.detach().isfinite().all()) and not bool(added.detach().isfinite()):
            raise Wrong(f"what is distilled is {float(added)}")
        return added

    @property
    def _dtype(self) -> torch.dtype:
        """What the teacher computes in."""
        teacher = self._teachers.current
        held = () if teacher is None else teacher.parameters()
        return next((each.dtype for each in held if each.is_floating_point()), torch.float32)

    def close(self) -> None:
        if self.of_seed is not None:
            self.of_seed.close()
