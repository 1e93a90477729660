"""What the help of each command shows below its options: examples, and what its exit status means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

DONE, REFUSED, INTERRUPTED = "done", "bad input, or refused: one line on stderr says why", "interrupted"
IN_ORDER, COMING_UP = "ended in order, also by Ctrl-C", "interrupted while it came up"


@dataclass(frozen=True, slots=True)
class Page:
    """One command. `fails` says what status 1 means, where the command has one; `done` what 0 does."""

    examples: tuple[str, ...] = ()
    fails: str = ""
    done: str = DONE

    @property
    def interrupted(self) -> str:
        """What status 130 means."""
        return INTERRUPTED if self.done == DONE else COMING_UP


PAGES: dict[str, Page] = {
    "demo": Page(("esper demo", "esper demo --json"), "the demo did not come to its end"),
    "up": Page(
        ("esper up -f run.toml", "esper up --example > run.toml", "esper up -f run.toml --detach"),
        "a process was given up, or had to be killed at the end",
        IN_ORDER,
    ),
    "ps": Page(("esper ps demo", "esper ps demo --json")),
    "restart": Page(("esper restart regional demo", "esper restart regional-r0 demo")),
    "down": Page(("esper down demo",), "a process had to be killed, or the log is still being kept after 30 s"),
    "tail": Page(
        (
            "esper tail demo --last 20",
            "esper tail demo --tier receipts --since 5m --no-follow --json",
            "esper tail demo --tier worker --source 'worker-*' --level warning --no-follow",
        )
    ),
    "export prometheus": Page(("esper export prometheus demo --port 9464",)),
    "export tensorboard": Page(("esper export tensorboard demo events --once",)),
    "export jsonl": Page(("esper export jsonl demo aggregates.jsonl --once",)),
    "top": Page(("esper top demo", "esper top demo --read-only")),
    "web": Page(("esper web demo", "esper web demo --port 0 --token-file token")),
    "status": Page(("esper status --run demo", "esper status --run demo --json")),
    "sites": Page(("esper sites train.py:make --input 8,4", "esper sites train.py:make --match '1' --json")),
    "dead list": Page(("esper dead list --run demo --json", "esper dead list --run demo --reason bad_seal")),
    "dead show": Page(("esper dead show ID --run demo",)),
    "dead replay": Page(("esper dead replay ID --run demo --dry-run",)),
    "dead purge": Page(("esper dead purge --run demo --reason bad_seal --dry-run",)),
    "streams": Page(("esper streams --run demo", "esper streams --run demo --json")),
    "streams forget": Page(("esper streams forget worker-9 --run demo --dry-run",)),
    "log": Page(("esper log demo --out demo.jsonl", "esper log demo --out demo.jsonl --public public.json")),
    "verify": Page(("esper verify demo", "esper verify demo --json"), "something was found"),
    "audit": Page(("esper audit demo", "esper audit demo --since 10m --json"), "a command is without its signature"),
    "report": Page(("esper report demo", "esper report demo --out demo.html --json"), "the log does not verify"),
    "replay": Page(("esper replay demo", "esper replay demo --dry-run"), "it came to other parameters"),
    "diff": Page(("esper diff demo demo",), "the two runs part somewhere"),
    "checkpoints list": Page(("esper checkpoints list checkpoints",)),
    "checkpoints verify": Page(("esper checkpoints verify checkpoints",), "one does not verify"),
    "acl": Page(("esper acl digits-00c0ffee --out users.acl", "esper acl digits-00c0ffee --out users.acl --json")),
    "keys new": Page(("esper keys new master.json",)),
    "keys list": Page(("esper keys list master.json", "esper keys list master.json --json")),
    "keys rotate": Page(
        ("esper keys rotate master.json --lead 3600", "esper keys rotate master.json --lead 0 --force")
    ),
    "keys retire": Page(("esper keys retire KEY_ID master.json",)),
    "keys derive": Page(
        (
            "esper keys derive master.json --run digits-0a1b2c3d --role worker --out worker.json",
            "esper keys derive master.json --run digits-0a1b2c3d --into keys",
        )
    ),
    "doctor": Page(("esper doctor", "esper doctor --run demo --json"), "something fails"),
    "redis": Page(("esper redis --dir ./redis --appendfsync always",), done=IN_ORDER),
    "bench run": Page(fails="a row failed; with --gate also a missed gate or a second slow-down"),
    "bench soak": Page(fails="the row failed"),
    "bench worker": Page(fails="no answer came"),
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
    told = {0: page.done, 1: page.fails, 2: REFUSED, 130: page.interrupted}
    return "; ".join(f"{number} {meaning}" for number, meaning in told.items() if meaning)
