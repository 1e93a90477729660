"""What a shell offers for a word: runs, things in them, choices. Looks at live runs, for a second at most."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from esper.errors import EsperError

LONGEST_S = 2.0
"""After this the process ends without an answer, whatever holds it: nobody waits for a shell."""


def offer(command: Any) -> None:
    """Have the options and arguments of a command, and of those below it, offer what is live."""
    for child in getattr(command, "commands", {}).values():
        offer(child)
    command.params = [parameter for parameter in command.params if parameter.name not in FOR_ESPER_ALONE]
    reads_logs = any(parameter.name == "runs_dir" for parameter in command.params)
    for parameter in command.params:
        if reads_logs and parameter.name in LOGGED:
            parameter._custom_shell_complete = offering("logged")
        elif (source := SOURCE_OF.get((command.name, parameter.name), parameter.name)) in SOURCES:
            parameter._custom_shell_complete = offering(source)


def keep_order() -> None:
    """Have bash show what is offered as it is ordered: a model's sites, the newest letter first. It can from 4.4 on."""
    shells = sys.modules.get("typer._completion_shared")  # the library's own, which may come to be called otherwise
    scripts, rest = getattr(shells, "_completion_scripts", {}), "-o default -F %(complete_func)s %(prog_name)s"
    if "bash" in scripts:
        kept = f"complete -o nosort {rest} 2>/dev/null || complete {rest}"
        scripts["bash"] = scripts["bash"].replace(f"\ncomplete {rest}", f"\n{kept}")


def offering(source: str) -> Callable[[Any, Any, str], list[str]]:
    """As the library calls it: with what was typed so far."""

    def offered(context: Any, parameter: Any, incomplete: str) -> list[str]:
        limit(LONGEST_S)
        try:
            found = SOURCES[source](run_named(context))
        except (EsperError, OSError, TimeoutError):
            found = []
        finally:
            limit(0.0)
        return [name for name in found if name.startswith(incomplete) and is_plain(name)]

    return offered


def is_plain(name: str) -> bool:
    """Whether a shell evaluates nothing of it: bash puts it on the line as it is; its author may mean harm."""
    return shlex.quote(name) == name and not name.startswith("-")


def limit(seconds: float) -> None:
    """End the process, quietly, once the time is over: a name server may hold it longer than asked. 0: never."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, seconds)


def run_named(context: Any) -> str | None:
    """The run that the line names so far."""
    return context.params.get("run") or os.environ.get("ESPER_RUN")


def live_runs(run: str | None = None) -> list[str]:
    """Names and ids of the embedded runs of this user."""
    from esper.bus import runs

    live = runs.list_live()
    return sorted({record.name for record in live} | {record.run_id for record in live})


def logged(run: str | None = None) -> list[str]:
    """The same, and ids of runs that have ended, whose logs lie below ./runs."""
    from esper.cli.options import RUNS
    from esper.runtime.history.logbook import EXPORT, LOG

    ended = {path.parent.parent.name for path in RUNS.glob(f"*/{LOG}/{EXPORT}")}
    return sorted(ended.union(live_runs()))


def seeds(run: str | None) -> list[str]:
    """Of the run that is named, or of the only live one."""
    return sorted({state.seed_id for beat in beats(run) for state in beat.seeds})


def sites(run: str | None) -> list[str]:
    """That a seed may be put at, as its workers say: in the order of the model."""
    return list(dict.fromkeys(site for beat in beats(run) for site in beat.sites))


def letters(run: str | None) -> list[str]:
    """Ids of dead letters, the newest first."""
    from esper.cli import asking

    return [] if (meant := run or only_live()) is None else asking.letters(meant)


def only_live() -> str | None:
    """The run that is meant where none is named; None: there are none, or several."""
    from esper.bus import runs

    live = runs.list_live()
    return live[0].run_id if len(live) == 1 else None


def beats(run: str | None) -> list[Any]:
    """The newest heartbeat of each worker."""
    from esper.cli import asking

    return [] if (meant := run or only_live()) is None else asking.beats(meant)


def optimizers(run: str | None) -> list[str]:
    """That of the host, and those that seeds have."""
    return ["host", *seeds(run)]


def words(table: str, run: str | None) -> list[str]:
    """Of a choice, as whoever checks it has them: `module:table`."""
    module, name = table.split(":")
    return list(getattr(import_module(module), name))


def blueprints(run: str | None) -> list[str]:
    """Ours, by name: those of installed packages would take an import of torch."""
    return list(BLUEPRINTS)


FOR_ESPER_ALONE = ("install_completion", "show_completion")
BLUEPRINTS = ("noop", "norm", "lora", "mlp", "depthwise", "conv1x1", "conv3x3", "se", "attention")
LOGGED = ("named", "run", "one", "other")
SOURCES: dict[str, Callable[[str | None], list[str]]] = {
    "run": live_runs,
    "named": live_runs,
    "logged": logged,
    "seed": seeds,
    "site": sites,
    "letter_id": letters,
    "ids": letters,
    "blueprint": blueprints,
    "optimizer_id": optimizers,
    "curve": partial(words, "esper.leyline.commands:CURVES"),
    "state": partial(words, "esper.leyline.commands:BREAKERS"),
    "phase": partial(words, "esper.leyline.commands:PHASES"),
    "tier": partial(words, "esper.client:TIERS"),
    "emergency level": partial(words, "esper.leyline.commands:LEVELS"),
    "level": partial(words, "esper.cli.output.filters:LEVELS"),
    "dead reason": partial(words, "esper.cli.dead:REASONS"),
}
"""By a parameter's name, or as SOURCE_OF says."""
SOURCE_OF = {
    ("emergency", "level"): "emergency level",
    **{(command, "reason"): "dead reason" for command in ("list", "replay", "purge")},
}
"""By command and parameter, where others have one of the same name."""
