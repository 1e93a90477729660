"""`esper publish`: one sub-command per operation of the controller, made from the signatures of its methods."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from esper.errors import SettingError

OPERATIONS = (
    "germinate",
    "start_training",
    "start_grafting",
    "set_alpha_target",
    "stabilize",
    "evaluate",
    "fossilize",
    "cull",
    "cancel",
    "reset",
    "terminate",
    "adjust_optimizer",
    "circuit_breaker",
    "pause",
    "resume",
    "emergency",
    "rollback",
    "structural_pruning",
    "initialize_host",
    "create_seed_optimizer",
    "grant_steps",
    "reset_optimizer_state",
    "register_teacher",
)
"""Methods of Controller that publish a command, in the order that the help shows."""

Run = Annotated[str | None, typer.Option(help="Name or id of a live run; else ESPER_RUN.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.0, help="Seconds to wait for every worker to apply it.")]
Wait = Annotated[bool, typer.Option(help="Wait for the answers, or return once the command is published.")]
Param = Annotated[list[str], typer.Option("--param", metavar="NAME=VALUE", help="Repeatable.")]


def build() -> typer.Typer:
    """The sub-commands. Imports the client, which takes a moment."""
    from esper.client import Controller

    app = typer.Typer(no_args_is_help=True, help="Publish one command and print what the run answers.")
    for name in OPERATIONS:
        method = getattr(Controller, name)
        command = _command(name, inspect.signature(method, eval_str=True))
        app.command(name.replace("_", "-"), help=method.__doc__)(command)
    return app


def _command(name: str, signature: inspect.Signature) -> Callable[..., None]:
    """A function whose options are the parameters of the method, `**parameters` as --param NAME=VALUE."""
    parameters = list(signature.parameters.values())[1:]
    mapping = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)

    def command(run: str | None, timeout_s: float, wait: bool, **given: Any) -> None:
        named = given.pop(mapping) if mapping else []
        asyncio.run(_publish(name, run, timeout_s if wait else None, {**given, **pairs(named, given)}))

    shown = [_shown(parameter) for parameter in parameters]
    shown += [_keyword("run", Run, None), _keyword("timeout_s", Timeout, 60.0), _keyword("wait", Wait, True)]
    command.__setattr__("__signature__", inspect.Signature(shown))
    return command


def _shown(parameter: inspect.Parameter) -> inspect.Parameter:
    match parameter.kind:
        case inspect.Parameter.VAR_KEYWORD:
            return _keyword(parameter.name, Param, [])
        case inspect.Parameter.KEYWORD_ONLY:
            kind = list[str] if parameter.annotation == Sequence[str] else parameter.annotation
            default = [] if kind == list[str] else parameter.default
            return _keyword(parameter.name, Annotated[kind, typer.Option()], default)
        case _:
            kind = Annotated[parameter.annotation, typer.Argument()]
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


async def _publish(name: str, run: str | None, timeout_s: float | None, arguments: dict[str, Any]) -> None:
    """With a timeout: print the acceptance, then what each worker answers. Without: the entry only."""
    from esper.cli.format import receipt_line
    from esper.client import Controller

    async with Controller.connect(run, name="publish") as controller:
        receipt = await getattr(controller, name)(**arguments)
        print(f"published {receipt.command_id} as {receipt.entry_id}", flush=True)
        if timeout_s is None:
            return
        print(receipt_line(await receipt.accepted(timeout_s)), flush=True)
        for outcome in await receipt.applied(timeout_s):
            print(receipt_line(outcome), flush=True)
