"""Other people's blueprints come as installed code: a distribution with an entry point, never a message."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from esper.errors import SettingError
from esper.kernels.blueprints import BLUEPRINTS
from esper.kernels.installed import installed_blueprints

GATED = """
import torch
from torch import nn

from esper.kernels.blueprints import Blueprint, BlueprintRange


class Gated(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(width))

    def forward(self, x, h):
        return h * self.gate


def build(module, input_shape, output_shape, parameters):
    return Gated(output_shape[-1])


def misfit(module, input_shape, output_shape, parameters):
    return "" if output_shape[-1] % 2 == 0 else "its width is odd"


GATED = Blueprint("gated", (BlueprintRange("start", 0, 0, 1, integer=False),), build, "1.0", misfit=misfit)
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution of one module on sys.path, as an installer would."""

    def put(name: str, source: str, *entries: str) -> None:
        site = tmp_path / name
        metadata = site / f"{name}-1.2.dist-info"
        metadata.mkdir(parents=True)
        (site / f"{name}_module.py").write_text(source)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (metadata / "entry_points.txt").write_text("\n".join(["[esper.blueprints]", *entries]))
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, f"{name}_module", raising=False)

    return put


def test_an_installed_blueprint_stands_beside_ours(install: Install) -> None:
    install("acme", GATED, "gated = acme_module:GATED")

    blueprints = installed_blueprints()
    seed = blueprints["gated"].build(nn.Linear(8, 6), torch.Size((5, 8)), torch.Size((5, 6)), {"start": 0.5})
    h = torch.randn(5, 6)

    assert list(blueprints) == [*BLUEPRINTS, "gated"]
    assert torch.equal(h + seed(h, h), h)
    detail = blueprints["gated"].fits(nn.Linear(8, 5), (5, 8), (5, 5))
    assert detail == "blueprint gated does not fit a Linear (input [5, 8], output [5, 5]): its width is odd"


def test_without_any_installed_there_are_ours() -> None:
    assert installed_blueprints() == dict(BLUEPRINTS)


@pytest.mark.parametrize(
    ("source", "entry", "said"),
    [
        (GATED.replace('"gated"', '"lora"'), "acme_module:GATED", "blueprint of acme 1.2 is 'lora'; .*taken by esper"),
        ("", "acme_module:GATED", r"entry point 'one' of acme 1.2 is 'acme_module:GATED'; .*AttributeError"),
        ("", "no_such_module:GATED", r"entry point 'one' of acme 1.2 .*ModuleNotFoundError"),
        ("1 +", "acme_module:GATED", r"entry point 'one' of acme 1.2 .*SyntaxError"),
        ("GATED = 7", "acme_module:GATED", "expected a Blueprint; it is a int"),
        (GATED.replace('"start", 0', '"auto", 0'), "acme_module:GATED", "'gated' of acme 1.2 is 'auto'"),
    ],
)
def test_a_broken_one_is_one_error_that_names_its_distribution(
    install: Install, source: str, entry: str, said: str
) -> None:
    install("acme", source, f"one = {entry}")

    with pytest.raises(SettingError, match=said):
        installed_blueprints()


def test_two_distributions_with_one_id_are_both_named(install: Install) -> None:
    install("acme", GATED, "gated = acme_module:GATED")
    install("bolt", GATED, "gated = bolt_module:GATED")

    with pytest.raises(SettingError, match=r"blueprint of bolt 1\.2 is 'gated'; .*taken by acme 1\.2"):
        installed_blueprints()
