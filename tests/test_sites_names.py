"""A site is named as in the model that a person wrote, and a wrong name is told with near ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from esper.errors import SettingError
from esper.kasmina.slots.naming import bare_name, found, modules_at, undistributed


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.ModuleDict({"attn": nn.Linear(2, 2), "mlp": nn.Linear(2, 2)}) for _ in range(9))
        self.head = nn.Linear(2, 2)
        self.alias = self.head


@pytest.mark.parametrize(
    ("given", "bare"),
    [
        ("blocks.3.mlp", "blocks.3.mlp"),
        ("module.blocks.3.mlp", "blocks.3.mlp"),
        ("module._orig_mod.blocks.3.mlp", "blocks.3.mlp"),
        ("_orig_mod.module.blocks.3.mlp", "blocks.3.mlp"),
        ("blocks.3._orig_mod.mlp", "blocks.3.mlp"),
        ("blocks.3._checkpoint_wrapped_module.mlp", "blocks.3.mlp"),
        ("_fsdp_wrapped_module.blocks.3._fsdp_wrapped_module.mlp", "blocks.3.mlp"),
        ("encoder.module.mlp", "encoder.module.mlp"),
        ("module", "module"),
    ],
)
def test_the_names_of_wrappers_are_left_out(given: str, bare: str) -> None:
    assert bare_name(given) == bare


def test_a_site_is_found_in_a_block_that_was_wrapped_to_be_checkpointed() -> None:
    model = Model()
    mlp = found(model, "blocks.3.mlp")
    model.blocks[3] = checkpoint_wrapper(model.blocks[3], checkpoint_fn=checkpoint)

    assert found(model, "blocks.3.mlp") is mlp


def test_a_module_with_two_names_is_found_by_both() -> None:
    model = Model()

    assert found(model, "alias") is found(model, "head") is model.head


@pytest.mark.parametrize(
    ("site", "near"),
    [
        ("blocks.3.mpl", "blocks.3.mlp"),
        ("block.3.mlp", "blocks.3.mlp"),
        ("mlp", "blocks.0.mlp"),
        ("heads", "head"),
        ("", "alias"),
    ],
)
def test_an_unknown_site_is_answered_with_near_names_and_where_to_see_all(site: str, near: str) -> None:
    with pytest.raises(SettingError) as told:
        found(Model(), site)

    met = repr(site) if site else "not set"
    assert f"sites is {met}; expected the name of a submodule, such as " in str(told.value)
    assert near in str(told.value)
    assert "`esper sites` lists all 20" in str(told.value)
    assert len(str(told.value)) < 200


def test_an_unknown_site_of_a_small_model_is_answered_with_all_names() -> None:
    with pytest.raises(SettingError, match=r"expected one of 0, 1$"):
        found(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "tail")
    with pytest.raises(SettingError, match=r"expected one of blocks\.0$"):
        found(nn.ModuleDict({"blocks": nn.ModuleList([nn.Linear(2, 2)])}), "tail")
    with pytest.raises(SettingError, match="the model has no submodules"):
        found(nn.Linear(2, 2), "tail")


def test_a_module_that_nothing_calls_is_no_site() -> None:
    with pytest.raises(SettingError, match="'blocks'; expected a module that is called; a ModuleList only holds"):
        found(Model(), "blocks")


@pytest.mark.parametrize("sites", [("head", "alias"), ("head", "module.head"), ("head", "head")])
def test_two_sites_that_are_one_module_are_refused(sites: tuple[str, str]) -> None:
    with pytest.raises(SettingError, match="expected a module of its own; 'head' is the same one"):
        modules_at(Model(), sites)


def compiled(model: nn.Module) -> nn.Module:
    wrapper = torch.compile(model, backend="eager")
    assert isinstance(wrapper, nn.Module)
    return wrapper


@pytest.mark.usefixtures("process_group")
def test_a_rank_that_evaluates_alone_runs_the_model_below_the_distributed_one() -> None:
    plain = Model()
    distributed = DistributedDataParallel(plain)

    assert undistributed(plain) is plain
    assert undistributed(distributed) is plain
    assert undistributed(compiled(distributed)) is plain
    alone = compiled(plain)
    assert undistributed(alone) is alone
