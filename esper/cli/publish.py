"""`esper publish`: one sub-command per operation of the controller, made from its signature."""

from __future__ import annotations

import asyncio
import inspect
import json as notation
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, TypeAlias

import typer

from esper.cli.options import LiveRun
from esper.errors import SettingError

EXAMPLES = {
    "germinate": "s0 --site head --blueprint lora --param rank=4",
    "start_training": "s0 --param auto=1",
    "start_grafting": "s0 --steps 200 --alpha 1 --curve cosine --param auto=1",
    "set_alpha_target": "s0 --alpha 0.5 --steps 50",
    "stabilize": "s0",
    "evaluate": "s0",
    "fossilize": "s0",
    "cull": "s0",
    "cancel": "s0",
    "reset": "s0",
    "terminate": "s0",
    "adjust_optimizer": "host --param lr=0.001 --release momentum",
    "circuit_breaker": "s0 --state open --rationale 'its loss jumps'",
    "pause": "s0",
    "resume": "s0",
    "emergency": "--level halt --reason 'the data is wrong'",
    "rollback": "--step 1000 --reason 'worse since'",
    "structural_pruning": "--phase active",
    "prune": "--ratio 0.3 --criterion taylor --only head.weight",
    "initialize_host": "--param lr=0.01",
    "create_seed_optimizer": "s0 --lr 0.001 --param warmup_steps=50",
    "grant_steps": "s0 --num-steps 100 --grad-clip-norm 1",
    "reset_optimizer_state": "s0 --generation 2",
    "register_teacher": f"--digest {'0f' * 32}",
}
"""Operation, in the order that the help shows: words that may follow it. A method of Controller, but for `prune`."""

MEANINGS = {
    "seed": "Id of the seed: a name of yours, given when it is germinated.",
    "site": "Name of a submodule that was given to attach(); `esper sites` lists those of a model.",
    "blueprint": "What the seed is made from, such as lora, mlp or se.",
    "steps": "Length of the blending in optimizer steps.",
    "alpha": "The seed's weight at its end, 0 to 1.",
    "curve": "linear, cosine or sigmoid.",
    "optimizer_id": "host, or the id of a seed.",
    "release": "Name of a hyperparameter to hand back to the scheduler; repeatable.",
    "state": "open or closed.",
    "rationale": "Why, for the log.",
    "level": "notice, elevated, conservative or halt.",
    "reason": "Why, for the log.",
    "step": "Optimizer step; 0: the newest.",
    "phase": "validation_only, active or disabled.",
    "ratio": "Share of each layer's channels, 0 to 1.",
    "criterion": "taylor, fisher or gradient_norm.",
    "only": "Name of a weight that may be pruned; repeatable.",
    "leave": "Name of a weight that may not, as the last layer's; repeatable.",
    "masks": "File with the JSON form of a StructuralPruningResponse.",
    "lift": "Why the last masks are taken back.",
    "expected_step": "Of a lease its first step, 0: at once; else it marks a repeat, which changes nothing.",
    "lr": "Learning rate of the seed's optimizer.",
    "num_steps": "How many optimizer steps the lease is for; 0: without end.",
    "grad_clip_norm": "Clip the gradient to this norm; 0: don't.",
    "generation": "Refuse it unless the optimizer is of this generation; 0: any.",
    "parameters": "Of the blueprint (docs/blueprints.md) or of the operation, as rank=4 or auto=1; repeatable.",
    "hyperparameters": "Of the optimizer, as weight_decay=0.1; repeatable.",
    "safety_constraints": "A number that goes with the request; repeatable.",
    "digest": "sha256 of a safetensors file, 64 hex digits.",
}
"""Parameter of an operation: its line in the help."""

Timeout = Annotated[
    float, typer.Option("--timeout", min=0.0, help="Seconds to wait until all apply it; judged later, it is void.")
]
Wait = Annotated[bool, typer.Option(help="Wait for the answers, or return once the command is published.")]
Attempts = Annotated[int, typer.Option(min=1, help="Publish it again after each epoch while only its gate refuses.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object a line: what was published, then each answer.")]
Do: TypeAlias = Callable[[Callable[..., Awaitable[Any]]], None]
"""Takes an operation that wants its controller only."""


def build(do: Do | None = None) -> typer.Typer:
    """The sub-commands; `do`, where it is given, takes what each asks for. Imports the client, which takes a moment."""
    from esper.cli.prune import prune
    from esper.client import Controller

    app = typer.Typer(no_args_is_help=True, help="Publish one command and print what the run answers.")
    for name, words in EXAMPLES.items():
        operation = prune if name == "prune" else getattr(Controller, name)
        called = name.replace("_", "-")
        example = f"Examples:\n\n  $ esper publish {called} {words} --run demo"
        app.command(called, help=operation.__doc__, epilog=example)(_command(operation, do))
    return app


def _command(operation: Callable[..., Awaitable[Any]], do: Do | None) -> Callable[..., None]:
    """A function whose options are the operation's after its controller, `**parameters` as --param NAME=VALUE."""
    parameters = list(inspect.signature(operation, eval_str=True).parameters.values())[1:]
    mapping = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)

    def command(run: str | None, timeout_s: float, wait: bool, attempts: int, as_json: bool, **given: Any) -> None:
        named = given.pop(mapping) if mapping else []
        asked = partial(operation, **given, **pairs(named, given))
        if do is not None:
            do(asked)
        elif attempts == 1:
            asyncio.run(_publish(asked, run, timeout_s if wait else None, as_json))
        elif wait:
            asyncio.run(_persist(asked, run, timeout_s, attempts, as_json))
        else:
            raise SettingError("--attempts", attempts, "1 with --no-wait: nobody hears of a gate that holds it back")

    shown = [_shown(parameter) for parameter in parameters]
    shown += [_keyword("run", LiveRun, None), _keyword("timeout_s", Timeout, 60.0), _keyword("wait", Wait, True)]
    shown += [_keyword("attempts", Attempts, 1), _keyword("as_json", Json, False)]
    command.__setattr__("__signature__", inspect.Signature(shown))
    return command


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    match parameter.kind:
        case inspect.Parameter.VAR_KEYWORD:
            kind = typer.Option("--param", metavar="NAME=VALUE", help=MEANINGS[parameter.name])
            return _keyword(parameter.name, Annotated[list[str], kind], [])
        case inspect.Parameter.KEYWORD_ONLY:
            kind = list[str] if parameter.annotation == Sequence[str] else parameter.annotation
            default = [] if kind == list[str] else parameter.default
            return _keyword(parameter.name, Annotated[kind, typer.Option(help=MEANINGS[parameter.name])], default)
        case _:
            kind = Annotated[parameter.annotation, typer.Argument(help=MEANINGS[parameter.name])]
            return _keyword(parameter.name, kind, parameter.default)


def _keyword(name: str, annotation: object, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def pairs(texts: Sequence[str], taken: Sequence[str] | dict[str, Any] = ()) -> dict[str, float]:
    """`rank=4` as a name and a number; SettingError for anything else."""
    numbers: dict[str, float] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in numbers or name in taken:
            raise SettingError("--param", text, "NAME=NUMBER, each name once")
        try:
            numbers[name] = float(value)
        except ValueError:
            raise SettingError(f"--param {name}", value, "a number") from None
    return numbers


async def _publish(
    operation: Callable[..., Awaitable[Any]], run: str | None, timeout_s: float | None, as_json: bool
) -> None:
    """With a timeout: print the acceptance, then what each worker answers. Without: the entry only."""
    from esper.cli.waiting import Deadline
    from esper.client import Controller

    deadline = Deadline(timeout_s)
    async with AsyncExitStack() as stack:
        async with deadline.connecting():
            controller = await stack.enter_async_context(Controller.connect(run, name="publish"))
        async with deadline.sending(controller):
            receipt = await operation(controller.within(deadline.left_s))
        told = {"command_id": receipt.command_id, "entry_id": receipt.entry_id}
        print(notation.dumps(told) if as_json else "published {command_id} as {entry_id}".format(**told), flush=True)
        if timeout_s is None:
            return
        _tell(acceptance := await deadline.accepted(controller, receipt), as_json)
        for outcome in await deadline.applied(controller, receipt, acceptance):
            _tell(outcome, as_json)


async def _persist(
    operation: Callable[..., Awaitable[Any]], run: str | None, timeout_s: float, attempts: int, as_json: bool
) -> None:
    """Until its gate lets it through; print what each worker answers then, and on stderr why it is asked again."""
    from esper.cli.waiting import Deadline, Refusals
    from esper.client import Controller

    async with AsyncExitStack() as stack:
        async with Deadline(timeout_s).connecting():
            controller = await stack.enter_async_context(Controller.connect(run, name="publish"))
        attempt = partial(Refusals(attempts, timeout_s).heard, partial(operation, controller.within(timeout_s)))
        for outcome in await controller.persist(attempt, attempts=attempts, timeout_s=timeout_s):
            _tell(outcome, as_json)


def _tell(receipt: Any, as_json: bool) -> None:
    from esper.cli.output.format import as_dict, receipt_line

    print(notation.dumps(as_dict(receipt)) if as_json else receipt_line(receipt), flush=True)
