"""`esper`: its sub-commands, each imported on first use, and the one place where bad input becomes one line."""

from __future__ import annotations

import io
import os
import platform
import select
import sys
from errno import ENAMETOOLONG
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from esper.cli import completing, manual
from esper.errors import EsperError, SettingError, UnknownRunError, near
from esper.leyline.terminal_text import printable
from esper.runtime import gc_policy
from esper.runtime.printing import FULL
from esper.version import __version__

HOMES = {
    "demo": ("esper.cli.demo:demo", "Run the whole system on this machine, and show what it did."),
    "up": ("esper.cli.up:up", "Start a run, and keep it going until it is told to end."),
    "ps": ("esper.cli.operate:ps", "List the processes of a run that is kept going."),
    "restart": ("esper.cli.operate:restart", "Start the processes of a role anew, one after the other."),
    "down": ("esper.cli.operate:down", "End a run in order, so that nothing is lost."),
    "publish": ("esper.cli.publish:build", "Publish one command and print what the run answers."),
    "tail": ("esper.cli.tail:tail", "Follow telemetry or receipts of a live run."),
    "export": ("esper.cli.export:app", "Carry telemetry to Prometheus, TensorBoard or a file of JSON lines."),
    "top": ("esper.cli.top:top", "Watch a live run on one screen of a terminal, and steer it by keys."),
    "status": ("esper.cli.status:status", "Show where each worker and each seed of a live run stands."),
    "web": ("esper.cli.web:web", "Show a live run in a browser: plots, seeds, every decision and its signature."),
    "sites": ("esper.cli.sites:sites", "List where seeds can join a model, and which blueprints fit."),
    "dead": ("esper.cli.dead:app", "Look at, replay and purge what was set aside."),
    "streams": ("esper.cli.streams:app", "Show each stream of a run: lag, pending, consumers, what was refused."),
    "log": ("esper.cli.log:log", "Export a run's log, sealed as it was."),
    "verify": ("esper.cli.verify:verify", "Check an exported log: seals, signatures, order, gaps."),
    "audit": ("esper.cli.audit:audit", "Print who signed what in a run, and what was rejected of whom."),
    "report": ("esper.cli.report:report", "Write the report of a run, from its log, as one HTML file."),
    "replay": ("esper.cli.replay:replay", "Run a finished run again from its log, and compare its parameters."),
    "diff": ("esper.cli.diff:diff", "Show where the decisions of two runs part."),
    "bench": ("esper.cli.bench.app:app", "Measure what it costs: list rows, run them, compare runs, write a report."),
    "checkpoints": ("esper.cli.checkpoints:app", "List and verify the checkpoints in a folder."),
    "acl": ("esper.cli.acl:acl", "Write an ACL file for Redis, with a user for each role of a run."),
    "keys": ("esper.cli.keys:app", "Make, list, rotate and retire keys."),
    "doctor": ("esper.cli.doctor:doctor", "Check this machine and a Redis, and say what to do."),
    "redis": ("esper.cli.redis:app", "Start an embedded Redis, or look at one."),
}
"""Sub-command: where it lives, and its line in the help."""

BENEATH = ("torch", "redis")
"""Packages whose releases `--version` tells."""
BAD_INPUT = 2
INTERRUPTED = 130
# Typer ships a click of its own, and promises no import path to its exceptions.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]


class Lazy(TyperGroup):
    """Knows each sub-command's name and line, and imports it when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(HOMES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return TyperCommand(cmd_name, help=HOMES[cmd_name][1]) if cmd_name in HOMES else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in HOMES and not ctx.resilient_parsing:
            raise SettingError("COMMAND", args[0], f"one that `esper --help` lists{suggestion(args[0])}")
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(str(name)), rest

    # What else the library's `main` takes passes through by name.
    def main(self, args: Any = None, prog_name: str | None = None, **options: Any) -> Any:  # type: ignore[override]
        """Run, and exit. What goes wrong on purpose is one line on stderr and status 2, never a traceback."""
        options["standalone_mode"] = False  # else the library prints usage errors its own way
        status: Any = 0
        open_streams()
        gc_policy.end_soon()
        try:
            status = super().main(args, prog_name, **options)
            sys.stdout.flush()  # what is left to write meets a closed pipe here, not at the interpreter's end
        except (EsperError, UsageError) as error:
            refuse(sentence(error))
        except (typer.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except (BrokenPipeError, SystemExit) as ending:
            if not (is_of_closed_pipe(ending) and silenced()):
                raise
        except OSError as error:
            if error.errno == ENAMETOOLONG:
                refuse(str(SettingError("path", error.filename, "one as short as this system takes")))
            if error.errno not in FULL:
                raise
            drop_the_rest()
            refuse(f"{error.filename or 'output'} can't be written: {error.strerror}")
        sys.exit(status if isinstance(status, int) else 0)


def sentence(error: Exception) -> str:
    """What went wrong on purpose, for a person."""
    match error:
        case UnknownRunError():
            return f"{error}{trace(error.run)}"
        case EsperError():
            return str(error)
    return usage_sentence(error)


def is_of_closed_pipe(ending: BaseException) -> bool:
    """Also where the library makes status 1 of it, which is no answer of the command's."""
    return isinstance(ending, BrokenPipeError) or isinstance(ending.__context__, BrokenPipeError)


def trace(run: str) -> str:
    """Where the newest run of this name or id that `esper up` kept going from here says what became of it.

    It may go on: whoever started it may have had another runtime directory.
    """
    from esper.cli.options import RUNS

    named = {log: log.parent.parent.name for log in RUNS.glob("*/logs/up.log")}
    found = [log for log, run_id in named.items() if run in (run_id, run_id.rpartition("-")[0])]
    return f"; what became of one says {max(found, key=modified)}" if found else ""


def modified(path: Path) -> int:
    """When, in nanoseconds; 0: it is gone by now."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def usage_sentence(error: Exception) -> str:
    """What it says; of an option that there is none of, how a parameter of that name would be given."""
    said = error.format_message() if hasattr(error, "format_message") else str(error)
    context, option = getattr(error, "ctx", None), str(getattr(error, "option_name", ""))
    takes = {name for each in context.command.params for name in each.opts} if context else set()
    if option.startswith("--") and "--param" in takes - {option}:
        return f"{said.rstrip('.')}; a parameter goes as --param {option[2:].replace('-', '_')}=VALUE"
    return str(said)


def suggestion(word: str) -> str:
    """The same word below `esper publish`, which is easily left out; else the near ones."""
    return f"; `esper publish {word}` is one" if word in load("publish").commands else near(word, HOMES)


def open_streams() -> None:
    """What was closed before this began, as by `>&-`, leads nowhere: a file that is opened could get its number.

    A path of any bytes can be told: what is no letter here goes out as an escape.
    """
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    if isinstance(sys.stdout, io.TextIOWrapper):  # and not what a program has put in its place
        sys.stdout.reconfigure(errors="backslashreplace")


def refuse(sentence: str) -> NoReturn:
    """Say it in one line, and exit with status 2. There is nothing to say where help was printed instead."""
    if sentence:
        line = printable(" ".join(sentence.split()))  # it may quote whoever answered, or a file
        sys.stderr.write(f"esper: {line}\n")  # at once: who has read it may close the pipe
    sys.exit(BAD_INPUT)


def silenced() -> bool:
    """Have what is left to write go nowhere if nobody reads stdout any more, as in `esper tail | head`; whether so."""
    out, looked = sys.stdout.fileno(), select.poll()
    if os.path.samestat(os.fstat(out), os.stat(os.devnull)):
        return True  # rich has seen to it
    looked.register(out, 0)  # which still tells that a pipe has no reader
    if not looked.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)  # else the flush at exit complains
    return True


def drop_the_rest() -> None:
    """Have what stdout could not take go nowhere: it is still there, and the flush at exit would complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def load(name: str) -> Any:
    """The sub-command itself: a Typer app, what builds one, or a plain function."""
    from esper.cli.output.quiet import log_to_stderr

    log_to_stderr()
    return command_named(name)


@cache
def command_named(name: str) -> Any:
    """What it is made of never changes: tests that call a command a hundred times in one process make it once."""
    module, attribute = HOMES[name][0].split(":")
    with gc_policy.loading("opentelemetry"):
        home = getattr(import_module(module), attribute)
        if attribute == "build":
            home = home()
    if not isinstance(home, typer.Typer):
        function, home = home, typer.Typer(add_completion=False)
        home.command(name)(function)
    command = get_command(home)
    command.name = name
    manual.complete(command, name)
    completing.offer(command)
    return command


completing.keep_order()
app = typer.Typer(cls=Lazy, no_args_is_help=True, pretty_exceptions_enable=False)


def tell_versions(is_asked: bool) -> None:
    """Which release this is, and what it runs on, as installed: importing torch takes seconds."""
    if not is_asked:
        return
    typer.echo(f"esper {__version__}, python {platform.python_version()}, {', '.join(map(installed, BENEATH))}")
    raise typer.Exit


def installed(package: str) -> str:
    """Its name and release, as pip knows it."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} not installed"


@app.callback()
def esper(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=tell_versions, help="Print versions, and end.")
    ] = False,
) -> None:
    """Steer a PyTorch training run while it runs. Each command has examples in its own --help."""


if __name__ == "__main__":
    app()
