"""What the help of each command shows below its options: examples, and what its exit status means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DONE, REFUSED, INTERRUPTED = "done", "bad input, or refused: one line on stderr says why", "interrupted"


@dataclass(frozen=True, slots=True)
class Page:
    """One command. `fails` says what status 1 means, where the command has one."""

    examples: tuple[str, ...] = ()
    fails: str = ""
    alone: str = ""
    """Why its examples are not run by the tests as they stand; empty: they are."""


TUTORIAL = "the tutorial's test does, with a run of its own"
WRITTEN = "the folder is one that a run has written: tests/test_checkpoint_cli.py"
ENDLESS = "goes on until it is interrupted"
PAGES: dict[str, Page] = {
    "demo": Page(("esper demo", "esper demo --json"), "the demo did not come to its end", "tests/system/test_demo.py"),
    "up": Page(
        ("esper up --name demo", "esper up --example > run.toml", "esper up -f run.toml --detach"),
        "a process was given up, or had to be killed at the end",
        "goes on until it is told to end: tests/system/test_interrupts.py",
    ),
    "ps": Page(("esper ps demo", "esper ps demo --json"), alone="tests/test_up.py has a run that is kept going"),
    "restart": Page(
        ("esper restart regional demo", "esper restart trainer-0 demo"),
        alone="tests/test_up.py has a run that is kept going",
    ),
    "down": Page(
        ("esper down demo",),
        "a process had to be killed, or the log is still being kept after 30 s",
        "tests/test_up.py has a run that is kept going",
    ),
    "tail": Page(
        (
            "esper tail demo --last 20",
            "esper tail demo --tier receipts --since 5m --no-follow --json",
            "esper tail demo --tier worker --source 'worker-*' --level warning --no-follow",
        )
    ),
    "export prometheus": Page(("esper export prometheus demo --port 9464",), alone=ENDLESS),
    "export tensorboard": Page(("esper export tensorboard demo events --once",)),
    "export jsonl": Page(("esper export jsonl demo aggregates.jsonl --once",)),
    "top": Page(("esper top demo", "esper top demo --read-only"), alone="it draws on a terminal until q"),
    "web": Page(("esper web demo", "esper web demo --port 0 --token-file token"), alone=ENDLESS),
    "status": Page(("esper status --run demo", "esper status --run demo --json")),
    "sites": Page(("esper sites train.py:make --input 8,4", "esper sites train.py:make --match '1' --json")),
    "dead list": Page(("esper dead list --run demo --json", "esper dead list --run demo --reason bad_seal")),
    "dead show": Page(("esper dead show 1700000000000-0 --run demo",), alone="the id is one of `esper dead list`"),
    "dead replay": Page(
        ("esper dead replay 1700000000000-0 --run demo --dry-run",), alone="the id is one of `esper dead list`"
    ),
    "dead purge": Page(("esper dead purge --run demo --reason bad_seal --dry-run",)),
    "streams": Page(("esper streams --run demo", "esper streams --run demo --json")),
    "streams forget": Page(
        ("esper streams forget worker-9 --run demo --dry-run",), alone="refused but for a worker that is gone"
    ),
    "log": Page(("esper log demo --out demo.jsonl", "esper log demo --out demo.jsonl --public public.json")),
    "verify": Page(("esper verify demo", "esper verify demo --json"), "something was found", TUTORIAL),
    "audit": Page(("esper audit demo", "esper audit demo --since 10m --json"), "a command is without its signature"),
    "report": Page(("esper report demo", "esper report demo --out demo.html --json"), "the log does not verify"),
    "replay": Page(
        ("esper replay demo --dry-run", "esper replay demo --json"), "it came to other parameters", TUTORIAL
    ),
    "diff": Page(("esper diff demo demo",), "the two runs part somewhere", "tests/test_diff.py"),
    "publish prune": Page(alone="asks the run for figures first: tests/test_cli_prune.py"),
    "checkpoints list": Page(("esper checkpoints list checkpoints",), alone=WRITTEN),
    "checkpoints verify": Page(("esper checkpoints verify checkpoints",), "one does not verify", WRITTEN),
    "acl": Page(("esper acl digits-00c0ffee --out users.acl", "esper acl digits-00c0ffee --out users.acl --json")),
    "keys new": Page(("esper keys new master.json",)),
    "keys list": Page(("esper keys list master.json", "esper keys list master.json --json")),
    "keys rotate": Page(("esper keys rotate master.json --lead 3600",)),
    "keys retire": Page(
        ("esper keys retire 0a1b2c3d master.json",), alone="the id is one of `esper keys list master.json`"
    ),
    "keys derive": Page(("esper keys derive master.json --run digits-0a1b2c3d --role worker --out worker.json",)),
    "doctor": Page(("esper doctor", "esper doctor --run demo --json"), "something fails"),
    "redis": Page(("esper redis --dir ./redis --appendfsync always",), alone=ENDLESS),
    "bench run": Page(fails="a row failed; with --gate also a missed gate or a second slow-down", alone="minutes"),
    "bench soak": Page(fails="the row failed", alone="hours"),
    "bench worker": Page(fails="no answer came", alone="loads a run for a minute"),
}
"""By the words after `esper`. A command that is not here has its examples where it is written (`epilog=`)."""


def complete(command: Any, path: str) -> None:
    """Put examples and exit statuses below the options of a command and of those below it."""
    below = getattr(command, "commands", None)
    for name, child in (below or {}).items():
        complete(child, f"{path} {name}")
    if path in PAGES or not below:
        command.epilog = epilog(path, command.epilog or "")


def epilog(path: str, written: str) -> str:
    """Paragraphs: examples, whoever wrote them down, and the statuses."""
    page = PAGES.get(path, Page())
    examples = ["Examples:", *(f"  $ {example}" for example in page.examples)] if page.examples else []
    return "\n\n".join([*([written] if written else []), *examples, f"Exit status: {statuses(page)}."])


def statuses(page: Page) -> str:
    """Number and meaning of each."""
    told = {0: DONE, 1: page.fails, 2: REFUSED, 130: INTERRUPTED}
    return "; ".join(f"{number} {meaning}" for number, meaning in told.items() if meaning)
