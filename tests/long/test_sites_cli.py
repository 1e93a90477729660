"""`esper sites` shows where seeds can join a model, and changes nothing in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from esper.cli.main import app
from esper.kasmina.slots.survey import survey
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from tests.forked_kit import Forge, script
from tests.seed_kit import APPLIED, Op, equal
from tests.site_kit import Plot

MODEL = """
import torch
from torch import nn

class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.LayerNorm(8)
        self.again = self.norm
        self.blocks = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])
        self.spare = nn.Linear(8, 3)
        self.blocks[0].weight.requires_grad_(False)

    def forward(self, x):
        x = self.norm(self.attn(x, x, x)[0])
        return self.again(self.blocks[1](self.blocks[0](x)))

def plain():
    return Attend()

def fed():
    return Attend(), {"x": torch.zeros(2, 5, 8)}

def number():
    return 7
"""


@pytest.fixture
def model_file(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(MODEL)
    return str(tmp_path / "model.py")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        app(["sites", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    status, out, _ = run(capsys, *arguments, "--json")
    assert status == 0
    return {view["site"]: view for view in json.loads(out)["sites"]}


def test_each_module_that_is_called_is_listed_with_shapes_and_sizes(
    capsys: pytest.CaptureFixture[str], model_file: str
) -> None:
    views = listed(capsys, f"{model_file}:fed")

    assert list(views) == ["attn", "attn.out_proj", "norm", "again", "blocks.0", "blocks.1", "spare"]
    attn, block = views["attn"], views["blocks.0"]
    assert (attn["input"], attn["output"], attn["output_kind"]) == ([2, 5, 8], [2, 5, 8], "tuple")
    assert (block["num_parameters"], block["num_trainable"]) == (72, 8)
    assert (views["norm"]["calls"], views["again"]["same_as"]) == (2, "norm")
    assert [name for name, view in views.items() if not view["calls"]] == ["attn.out_proj", "again", "spare"]


def test_the_table_says_why_a_site_takes_no_seed(capsys: pytest.CaptureFixture[str], model_file: str) -> None:
    status, out, _ = run(capsys, f"{model_file}:fed")

    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert status == 0
    assert "2x5x8 in tuple" in lines["attn"] and "lora" in lines["attn"]
    assert "never called" in lines["spare"]
    assert "the same module as norm" in lines["again"]


def test_one_site_is_told_as_one(capsys: pytest.CaptureFixture[str], model_file: str) -> None:
    _, out, _ = run(capsys, f"{model_file}:plain", "--match", "attn")

    assert out.splitlines()[0].strip() == "Attend: 1 site"


def test_inputs_may_come_from_the_command_line(capsys: pytest.CaptureFixture[str], model_file: str) -> None:
    views = listed(capsys, f"{model_file}:plain", "--input", "3,4,8", "--match", "blocks.*")

    assert {name: view["output"] for name, view in views.items()} == {"blocks.0": [3, 4, 8], "blocks.1": [3, 4, 8]}


def test_without_inputs_there_are_no_shapes_but_a_hint(capsys: pytest.CaptureFixture[str], model_file: str) -> None:
    status, out, _ = run(capsys, f"{model_file}:plain")

    assert status == 0
    assert "No example inputs" in out and "2x5x8" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nocolon"], "FACTORY is 'nocolon'; expected package.module:callable or path/to/file.py:callable"),
        (["no_such_package:make"], "importing it failed: No module named 'no_such_package'"),
        (["nowhere.py:make"], "nowhere.py is no file"),
        (["{file}:missing"], "has no callable 'missing'"),
        (["{file}:number"], "it returned a int"),
        (["{file}:plain", "--input", "2,x"], "--input is '2,x'; expected sizes and a dtype of torch"),
        (["{file}:plain", "--input", "2,3:nosuch"], "--input is '2,3:nosuch'"),
        (
            ["{file}:plain", "--input", "2,5,7"],
            "example inputs is '2,5,7:float32'; expected SHAPE:DTYPE of what the model takes",
        ),
        (["{file}:fed", "--match", "nothing.*"], "--match is 'nothing.*'; expected a pattern that some of the 7 sites"),
    ],
)
def test_what_does_not_fit_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], model_file: str
) -> None:
    status, out, err = run(capsys, *(argument.format(file=model_file) for argument in arguments))

    assert status == 2
    assert out == ""
    assert said in err and len(err.splitlines()) == 1


class Mixed(nn.Module):
    """Sites of many ranks, some with batch statistics and a generator."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm, self.drop = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)
        self.line, self.head = nn.Conv1d(4, 6, 3, padding=1), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        image = self.drop(self.norm(self.conv(x)))
        y: Tensor = self.head(self.line(image.flatten(2)).mean(2))
        return y


@pytest.mark.parametrize("place", ["nosuch.py", "nosuch_package.model", "json.nosuch", "."])
def test_a_model_that_is_not_there_is_said_before_torch_is_loaded(place: str, forge: Forge, tmp_path: Path) -> None:
    text = (
        "import sys; from esper.cli.main import app\n"
        f"try: app(['sites', {place + ':make'!r}])\n"
        "finally: print('torch' in sys.modules)"
    )

    told = forge.ended(script(text), folder=tmp_path)

    assert (told.returncode, told.stdout) == (2, "False\n")
    assert told.stderr.startswith(f"esper: FACTORY is '{place}:make'; expected ")


def test_a_survey_leaves_the_model_and_the_generators_as_they_were() -> None:
    model, twin = Mixed().train(), Mixed()
    state = torch.get_rng_state()

    survey(model, ((torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1)),), {}))

    assert torch.equal(torch.get_rng_state(), state)
    assert equal(model.state_dict(), twin.state_dict())
    assert all(module.training and not module._forward_hooks for module in model.modules())


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_scripted_parts_of_a_model_are_no_sites() -> None:
    inner = torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), torch.zeros(2, 8))  # type: ignore[no-untyped-call]
    model = nn.Sequential(nn.Linear(8, 8), inner, nn.Linear(8, 2))

    views = survey(model, ((torch.zeros(2, 8),), {}))

    assert [view.site for view in views] == ["0", "2"]
    assert all(view.blueprints for view in views)


def test_what_is_said_to_fit_germinates_and_nothing_else_does() -> None:
    inputs = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    views = survey(Mixed(), ((inputs,), {}))

    for view in views:
        assert {name for name in BLUEPRINTS if germinates(inputs, view.site, name)} == set(view.blueprints)
    assert sum(len(view.blueprints) for view in views) > 20


def germinates(inputs: Tensor, site: str, blueprint: str) -> bool:
    plot = Plot(Mixed().eval(), inputs, (site,))
    plot.host(inputs)
    command = pb.SeedCommand(seed_id="s0", operation=Op.SEED_OP_GERMINATE, site=site, blueprint_id=blueprint)
    return plot.executor.apply(command, 1, 0).status == APPLIED
