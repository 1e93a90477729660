"""Models that others wrote, with seeds grafted, culled and fossilised. Built from configs, without a download."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import esper
from esper.leyline import contracts as pb
from esper.session import Session
from tests.seed_kit import Op, equal
from tests.session_kit import on_seed, order, own_optimizer
from tests.site_kit import OPEN

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
TOKENS = torch.arange(4 * 6).reshape(4, 6) * 7 % 32
IMAGES = torch.linspace(-1, 1, 4 * 3 * 16 * 16).reshape(4, 3, 16, 16).sin()
ROWS = torch.linspace(-3, 3, 4 * 5 * 16).reshape(4, 5, 16).sin()


class Seq2seq(nn.Module):
    """torch's own encoder and decoder, fed with one sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.both(x, x)
        return y


@dataclass(frozen=True)
class Case:
    """A host, what it is fed, and its sites: for a fossil, for a seed that is culled, for one that only trains."""

    build: Callable[[], nn.Module]
    inputs: Tensor
    sites: tuple[str, str, str]


def hf(name: str, **config: Any) -> nn.Module:
    """A model of transformers, which is imported where a test needs it: by what it collects each worker would."""
    import transformers

    kind = name.partition("For")[0].removesuffix("LMHeadModel")
    model: nn.Module = getattr(transformers, name)(getattr(transformers, f"{kind}Config")(**config))
    return model


CASES = {
    "gpt2": Case(
        lambda: hf(
            "GPT2LMHeadModel",
            n_embd=16,
            n_layer=2,
            n_head=2,
            vocab_size=32,
            n_positions=8,
            use_cache=False,  # torch exports no model that gives a cache
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        ),
        TOKENS,
        ("lm_head", "transformer.h.0.mlp", "transformer.h.1.attn"),
    ),
    "bert": Case(
        lambda: hf("BertForSequenceClassification", vocab_size=32, **SIZES),
        TOKENS,
        ("bert.encoder", "bert.encoder.layer.1.attention", "bert.encoder.layer.0.output.dense"),
    ),
    "vit": Case(
        lambda: hf("ViTForImageClassification", image_size=16, patch_size=8, **SIZES),
        IMAGES,
        ("classifier", "vit.layernorm", "vit.embeddings"),
    ),
    "llama": Case(
        lambda: hf(
            "LlamaForCausalLM",
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            vocab_size=32,
            use_cache=False,
        ),
        TOKENS,
        ("model.layers.1", "model.layers.1.mlp.down_proj", "model.layers.0.self_attn"),
    ),
    "resnet": Case(
        lambda: hf(
            "ResNetForImageClassification", embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
        ),
        IMAGES,
        ("resnet.encoder.stages.1", "classifier.1", "resnet.encoder.stages.0"),
    ),
    "transformer": Case(
        Seq2seq, ROWS, ("both.decoder.norm", "both.decoder.layers.0.self_attn", "both.encoder.layers.0")
    ),
}


def built(case: Case) -> nn.Module:
    torch.manual_seed(7)
    return case.build().train()


def logits_of(output: Any) -> Tensor:
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits


def loss_of(output: Any, _: Tensor) -> Tensor:
    """Per example."""
    logits = logits_of(output)
    aim = torch.linspace(-2, 2, logits[0].numel()).reshape(logits[0].shape)
    loss: Tensor = (logits - aim).flatten(1).square().mean(1)
    return loss


def steps(run: Session, host: nn.Module, inputs: Tensor, num_steps: int) -> None:
    for _ in range(num_steps):
        with run.step() as step:
            loss = loss_of(host(inputs), inputs).mean()
            torch.autograd.backward(loss)
            run.optimizer.step()
            run.optimizer.zero_grad()
            step.loss(loss)


def bare_steps(host: nn.Module, inputs: Tensor, num_steps: int) -> nn.Module:
    optimizer = torch.optim.SGD(host.parameters(), lr=1e-3)
    for _ in range(num_steps):
        torch.autograd.backward(loss_of(host(inputs), inputs).mean())
        optimizer.step()
        optimizer.zero_grad()
    return host


def stages(run: Session) -> dict[str, str]:
    return {state.seed_id: pb.SeedLifecycleStage.Name(state.stage)[11:] for state in run.executor.states()}


def assert_closed_and_exported(run: Session, host: nn.Module, inputs: Tensor) -> None:
    """A closed run leaves what it gave, to 1e-5, and torch exports it."""
    grown = logits_of(host.eval()(inputs)).detach()

    run.close()

    torch.testing.assert_close(logits_of(host(inputs)), grown, rtol=0, atol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own exporter
        program = torch.export.export(host, (inputs,), strict=False)
    torch.testing.assert_close(logits_of(program.module()(inputs)), logits_of(host(inputs)))


@pytest.mark.parametrize("name", CASES)
def test_a_host_by_others_grows_and_can_do_without_us_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    case, host = CASES[name], built(CASES[name])
    optimizer = torch.optim.SGD(host.parameters(), lr=1e-3)
    examples = ([(case.inputs, case.inputs)], loss_of)
    run = esper.attach(
        host, optimizer=optimizer, sites=case.sites, holdout=examples, required=False, settings=replace(OPEN, rho=0.3)
    )
    steps(run, host, case.inputs, 1)
    seeds = dict(zip(("kept", "lost", "there"), case.sites, strict=True))
    for seed, site in seeds.items():
        germinate = on_seed(Op.SEED_OP_GERMINATE, seed, site=site, blueprint_id="lora")
        order(run, germinate, own_optimizer(seed, 0.01), on_seed(Op.SEED_OP_START_TRAINING, seed))
        run._must_wait()
    steps(run, host, case.inputs, 20)
    alone = bare_steps(built(case), case.inputs, 21)
    assert equal(host.state_dict(), alone.state_dict())

    order(run, on_seed(Op.SEED_OP_START_GRAFTING, "kept"), on_seed(Op.SEED_OP_START_GRAFTING, "lost"))
    steps(run, host, case.inputs, 12)
    order(run, on_seed(Op.SEED_OP_CULL, "lost"), on_seed(Op.SEED_OP_STABILIZE, "kept"))
    steps(run, host, case.inputs, 1)
    order(run, on_seed(Op.SEED_OP_EVALUATE, "kept"))
    steps(run, host, case.inputs, 1)
    order(run, on_seed(Op.SEED_OP_FOSSILIZE, "kept"))
    steps(run, host, case.inputs, 2)

    assert stages(run) == {"kept": "FOSSILIZED", "lost": "EMBARGOED", "there": "TRAINING"}
    plain = {key: value for key, value in host.state_dict().items() if ".seed_" not in key}
    bare = built(case)
    bare.load_state_dict(plain, strict=True)
    assert equal(bare.state_dict(), plain)
    assert_closed_and_exported(run, host, case.inputs)


# The library's newer name for it is not in every version that we admit.
@pytest.mark.filterwarnings("ignore:.gradient_checkpointing_enable:FutureWarning")
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("name", "site"), [("gpt2", "transformer.h.1.mlp"), ("llama", "model.layers.1.self_attn")])
def test_a_host_that_checkpoints_its_blocks_counts_each_step_once(
    name: str, site: str, reentrant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ESPER_RUN", raising=False)
    case, host = CASES[name], built(CASES[name])
    host.gradient_checkpointing_enable({"use_reentrant": reentrant})  # type: ignore[operator]
    optimizer = torch.optim.SGD(host.parameters(), lr=1e-3)
    run = esper.attach(host, optimizer=optimizer, sites=[site], required=False, settings=OPEN)
    steps(run, host, case.inputs, 1)
    germinate = on_seed(Op.SEED_OP_GERMINATE, site=site, blueprint_id="lora")
    order(run, germinate, own_optimizer("s0", 0.01), on_seed(Op.SEED_OP_START_TRAINING))

    steps(run, host, case.inputs, 8)

    meter = run.executor.seeds["s0"].meter
    assert (meter.fits.total, meter.sizes.total, float(meter.num_batches)) == (8, 8, 8)
    assert equal(host.state_dict(), bare_steps(built(case), case.inputs, 9).state_dict())
