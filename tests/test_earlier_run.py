"""A run that an earlier commit recorded is read by this one: its log, and its checkpoint.

The archive was written by commit bdbc964 (2026-11-21): a seed that blends, one that was culled, a rollback, one rank.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from esper.cli.main import app
from esper.kernels.blueprints import BLUEPRINTS
from esper.leyline import contracts as pb
from esper.leyline.keys.keyring import MasterKeyring
from esper.leyline.keys.rolekeys import RoleKeyring
from esper.leyline.kinds import Role
from esper.runtime.history.audit import audit
from esper.runtime.history.logbook import opened, read_file
from esper.runtime.history.retrace import plans
from esper.session import Session
from esper.session.joining import Joining
from esper.session.options import SessionOptions, WorkerIdentity
from esper.tolaria.state.digest import parameter_digest

RUN = "earlier-00c0ffee"
Stage = pb.SeedLifecycleStage


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    with ZipFile(Path(__file__).with_name("earlier_run.zip")) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "master.json").chmod(0o600)
    return tmp_path


def keys(recorded: Path, *roles: Role) -> RoleKeyring:
    return MasterKeyring.load(recorded / "master.json").derive(RUN, roles or [*Role])


def test_its_log_is_sound_under_its_keys(recorded: Path) -> None:
    result = audit(read_file(recorded / "run.jsonl"), keys(recorded))

    assert (result.findings, result.notes) == ([], [])
    assert (result.num_entries, result.num_signatures, result.seals_checked) == (68, 6, True)


def test_its_log_tells_how_to_run_it_again(recorded: Path) -> None:
    [plan] = plans(RUN, opened(read_file(recorded / "run.jsonl"), keys(recorded)))

    carried_out = [each.ref.command_id for order in plan.orders for each in order.commands]
    assert (plan.last_step, len(plan.orders), len(carried_out)) == (1200, 21, 7)
    assert {verdict.status for verdict in plan.verdicts.values()} == {pb.ReceiptStatus.RECEIPT_APPLIED}


def test_it_is_reported_on(recorded: Path) -> None:
    keys(recorded, *Role).save(recorded / "keyring.json")
    asked = [str(recorded / each) for each in ("run.jsonl", "keyring.json", "report.html")]

    said = CliRunner().invoke(app, ["report", asked[0], "--keyring", asked[1], "--out", asked[2]])

    assert said.stdout.strip().endswith("68 entries, 0 findings"), said.output


def joined(recorded: Path) -> tuple[Session, torch.optim.Optimizer]:
    """What its script made, without a runtime."""
    host = nn.Sequential(OrderedDict(hidden=nn.Linear(2, 3), tanh=nn.Tanh(), head=nn.Linear(3, 2)))
    optimizer = torch.optim.SGD(host.parameters(), lr=0.05, momentum=0.9)
    keys(recorded, Role.WORKER).save(recorded / "worker.json")
    chosen = SessionOptions(
        checkpoints=recorded / "checkpoints",
        resume=True,
        required=False,
        environment={"ESPER_KEYRING": str(recorded / "worker.json")},
    )
    identity = WorkerIdentity.of(chosen, 0, 1)
    joining = Joining(host, optimizer, ["hidden", "head"], None, chosen, identity, RUN)
    return joining.session(None, BLUEPRINTS), optimizer


def test_its_checkpoint_is_gone_on_from_with_the_parameters_that_it_had(recorded: Path) -> None:
    [manifest] = [json.loads(each.read_text()) for each in recorded.glob("checkpoints/*/*/*/manifest.json")]

    run, optimizer = joined(recorded)

    assert run.step_number == manifest["place"]["step"] == 1161
    assert parameter_digest(run.status.model.named_parameters()).hex() == manifest["parameter_digest"]
    stages = {report.seed_id: report.stage for report in run.executor.reports()}
    assert stages == {"s0": Stage.SEED_STAGE_BLENDING, "s1": Stage.SEED_STAGE_EMBARGOED}
    assert run.optimizers.has("s0")
    momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
    assert len(momenta) == 4 and all(each.any() for each in momenta)
    run.close()
