"""The code that how-to pages show works as it stands."""

from __future__ import annotations

import ast
import asyncio
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from esper.bus import names
from esper.cli.main import app
from esper.kernels.teacher.teacher import CheckpointedTeacher
from esper.leyline import contracts as pb
from tests.export_kit import aggregate, say
from tests.pages import ROOT, blocks, typed_by
from tests.reader import TRAIN
from tests.scripted import ScriptedRun, cancelled, failed, seed_state
from tests.teacher_kit import answers

HOWTO = ROOT / "docs" / "howto"


def defined(page: str, title: str) -> dict[str, Any]:
    """What the file that a page shows under this name defines."""
    [block] = [block for block in blocks(HOWTO / page) if block.title == title]
    names: dict[str, Any] = {"__name__": Path(title).stem}
    exec(compile(block.text, title, "exec"), names)
    return names


@pytest.mark.parametrize("page", ["pruning.md", "distillation.md"])
def test_a_page_says_where_each_class_in_its_code_comes_from(page: str) -> None:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    shown = [block.text for block in blocks(ROOT / "docs" / page) if block.language == "py"]
    nodes = [node for text in shown for node in ast.walk(compile(text, page, "exec", flags))]
    brought: dict[str, Any] = {}

    exec("\n".join(ast.unparse(node) for node in nodes if isinstance(node, ast.ImportFrom)), brought)

    named = {node.id for node in nodes if isinstance(node, ast.Name) and node.id[0].isupper()}
    assert named and named <= brought.keys()


def test_what_the_page_writes_is_a_teacher_also_with_tied_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teachers").mkdir()
    [shown] = [block for block in blocks(ROOT / "docs" / "distillation.md") if "save_model" in block.text]
    taught: dict[str, Any] = {"teacher": tied()}

    exec(compile(shown.text, str(shown), "exec"), taught)
    held = CheckpointedTeacher(tied(), Path("teachers", f"{taught['digest']}.safetensors"), digest=taught["digest"])

    asked = torch.arange(12).view(3, 4)
    assert torch.equal(held(asked), answers(taught["teacher"], asked))


def tied() -> nn.Module:
    """A model whose head is its embedding, drawn anew."""
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16, bias=False))
    model[1].weight = model[0].weight
    return model


def test_the_blueprint_of_the_page_is_one() -> None:
    gated = defined("blueprint.md", "acme_seeds.py")["GATED"]

    seed = gated.build(nn.Linear(8, 6), torch.Size((5, 8)), torch.Size((5, 6)), {"scale": 2.0})
    h = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))

    assert gated.fits(nn.Linear(8, 6), (5, 8), (5, 6)) is None
    assert torch.equal(seed(torch.zeros(5, 8), h), torch.zeros(5, 6))
    assert [name for name, _ in seed.named_parameters()] == ["gate"]


def test_once_its_distribution_is_installed_it_stands_among_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `pip install .` would put on the path, by the page's own pyproject.toml."""
    texts = {block.title: block.text for block in blocks(HOWTO / "blueprint.md") if block.title}
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    metadata = tmp_path / "acme_seeds-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    for group, entries in project["entry-points"].items():
        lines = [f"{name} = {target}" for name, target in entries.items()]
        (metadata / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    (tmp_path / "acme_seeds.py").write_text(texts["acme_seeds.py"])
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_seeds", raising=False)
    monkeypatch.chdir(tmp_path)
    [command] = [command for block in typed_by("tests/test_docs_howto.py") for command in block.commands]

    result = CliRunner().invoke(app, shlex.split(command)[1:])

    assert (result.exit_code, "gated" in result.output) == (0, True), result.output


async def test_the_policy_of_the_page_grafts_once_the_loss_is_flat(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESPER_RUN", run.name)
    policy = defined("policy.md", "policy.py")
    playing = [asyncio.create_task(run.serve(stream=stream)) for stream in ("commands", "optimizer")]
    playing.append(asyncio.create_task(beaten(run)))

    await policy["main"]()
    for task in playing:
        await cancelled(task)
    told = [opened.message for opened in await run.received(count=6)]

    assert capsys.readouterr().out.splitlines()[-1] == "helper is part of the model"
    operations = [message.seed_command.operation for message in told if isinstance(message, pb.AdaptationCommand)]
    assert operations[0] == pb.SeedOperation.SEED_OP_GERMINATE
    assert operations[-1] == pb.SeedOperation.SEED_OP_FOSSILIZE


async def test_the_policy_of_the_page_does_not_cull_what_a_gate_has_culled(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESPER_RUN", run.name)
    policy = defined("policy.md", "policy.py")
    culled = failed(pb.ReasonCode.REASON_GATE_FAILED, "no gain", stage=pb.SeedLifecycleStage.SEED_STAGE_EMBARGOED)
    playing = [asyncio.create_task(run.serve({3: culled})), asyncio.create_task(run.serve(stream="optimizer"))]
    playing.append(asyncio.create_task(beaten(run)))

    await policy["main"]()
    for task in playing:
        await cancelled(task)

    assert "gate_failed" in capsys.readouterr().out.splitlines()[-1]
    assert await run.redis.xlen(names.key(run.run_id, "commands")) == 3  # the third is what the gate has answered so


async def test_the_watch_of_the_page_reacts_to_a_metric(
    run: ScriptedRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ESPER_RUN", run.name)
    watch = defined("policy.md", "watch.py")
    playing = [asyncio.create_task(run.serve(stream="commands")), asyncio.create_task(measured(run))]

    await watch["main"]()
    for task in playing:
        await cancelled(task)
    [told] = await run.received(count=1)

    assert capsys.readouterr().out.startswith("lowered at step ")
    assert isinstance(told.message, pb.AdaptationCommand)
    assert told.message.WhichOneof("command") == "optimizer_adjustment"


async def measured(run: ScriptedRun) -> None:
    """One aggregate after the other, as fast as Redis takes them: two without news, then one with a loss that jumps."""
    number = 0
    while True:
        number += 1
        await say(run, aggregate(number, loss=[1.0, 1.0, 1.0, 1.0, 1.0, 40.0 if number % 3 == 0 else 1.0]))


async def beaten(run: ScriptedRun) -> None:
    """Epoch after epoch at the same loss, as fast as Redis takes them."""
    epoch = 0
    while True:
        epoch += 1
        await run.beat(epoch, seed_state("helper", pb.SeedLifecycleStage.SEED_STAGE_TRAINING))
