"""A blueprint of complex tensors is told so: to cast it to the site's precision would leave their real part alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from esper.kernels.blueprints import BLUEPRINTS, Blueprint
from esper.leyline import contracts as pb
from tests.seed_kit import Bench


class Turning(nn.Module):
    """Multiplies what the Fourier transform gives, by 0 at first."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(4, dtype=torch.cfloat if kind == "parameter" else torch.float32))
        self.phase: Tensor
        self.register_buffer("phase", torch.ones(4, dtype=torch.cfloat if kind == "buffer" else torch.float32))

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        y: Tensor = torch.fft.irfft(torch.fft.rfft(h) * self.up * self.phase, h.shape[-1])
        return y


@pytest.mark.parametrize(("kind", "name"), [("parameter", "up"), ("buffer", "phase")])
def test_a_blueprint_whose_tensors_are_complex_fails_its_gate_and_loses_no_half_of_them(kind: str, name: str) -> None:
    turns = Blueprint("turns", (), lambda *_: Turning(kind), "turns")
    bench = Bench(blueprints={**BLUEPRINTS, "turns": turns})
    bench.train(1)

    outcome = bench.germinate(blueprint="turns")

    assert outcome.reason == pb.ReasonCode.REASON_GATE_FAILED
    assert f"{name} is complex" in outcome.detail


def test_one_whose_tensors_are_real_passes_it() -> None:
    turns = Blueprint("turns", (), lambda *_: Turning("neither"), "turns")
    bench = Bench(blueprints={**BLUEPRINTS, "turns": turns})
    bench.train(1)

    assert bench.germinate(blueprint="turns").status == pb.ReceiptStatus.RECEIPT_APPLIED
