"""docs/cli.md: every command with its options, examples and exit statuses, from what --help knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from esper.cli import manual
from esper.cli.main import HOMES, load
from scripts.reference.marks import MARKS
from scripts.reference.tables import code, table

HEAD = """# Commands

Made from the code by `make docs`; `esper COMMAND --help` shows the same.

A run is named by its name or id, as `RUN` or by `--run`, and `ESPER_RUN` stands in for both where `RUN` is not
required; but for `esper doctor`, which looks at a run only where it is told to. A run on a Redis of its own is reached
by `ESPER_REDIS_URL` and a role keyring in `ESPER_KEYRING`. With `--json` stdout holds JSON and nothing else: one object
a line where there are several. Log lines go to stderr.

```sh
esper --install-completion
```

completes sub-commands, options, names of live runs, their seeds, sites and dead letters, and choices such
as `--level`, in bash, zsh and fish.
`esper --version` prints the release of Esper, Python, torch and redis-py.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | done, and the answer is no: what that means stands with the command |
| 2 | bad input, an unknown run, a command refused, no answer in time, a full disk: one line on stderr says which |
| 130 | interrupted by Ctrl-C, which ends `up`, `redis` and every role with 0; `demo`, `replay`, `top` also by SIGTERM |

"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(section(path, each) for name in HOMES for path, each in walked(load(name), name))


def walked(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every command that does something, by the words after `esper`."""
    below = getattr(command, "commands", {})
    if not below or command.invoke_without_command:
        yield path, command
    for name, child in below.items():
        yield from walked(child, f"{path} {name}")


def section(path: str, command: Any) -> str:
    """One command."""
    words = [shown(one) for one in arguments(command)]
    usage = " ".join(["esper", path, "[OPTIONS]", *words])
    rows = [
        (named(one), default(one), one.help or "") for one in command.params if one.name != "help" and not hidden(one)
    ]
    parts = [f"## esper {path}", "", prose(command.help or ""), "", f"    {usage}", ""]
    return "\n".join(parts) + "\n" + table(("", "default", ""), rows) + examples(path, command) + status(path)


def prose(text: str) -> str:
    """Paragraphs of a docstring, each as one line."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def arguments(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument"]


def hidden(one: Any) -> bool:
    """Options that only our own processes give; an argument has no such mark."""
    return bool(getattr(one, "hidden", False))


def shown(argument: Any) -> str:
    word = str(argument.metavar or argument.name.upper())
    return word if argument.required else f"[{word.strip('[]')}]"


def named(one: Any) -> str:
    """As it is typed."""
    if one.param_type_name == "argument":
        return code(str(one.metavar or one.name.upper()))
    value = "" if one.is_flag else f" {one.metavar or 'VALUE'}"
    return ", ".join(code(f"{each}{value}") for each in [*one.opts, *one.secondary_opts])


def default(one: Any) -> str:
    if one.required:
        return "required"
    value = one.default
    return code(str(value)) if isinstance(value, int | float | str | Path) and not isinstance(value, bool) else ""


def examples(path: str, command: Any) -> str:
    """A block, and which test types it where it is not the walker of pages."""
    found = re.findall(rf"(?:Example: |\$ )(esper {path}\b.*)", command.epilog or "")
    if not found:
        return ""
    mark = f"<!-- {MARKS[path]} -->\n" if path in MARKS else ""
    return "\n".join([f"{mark}```sh", *found, "```", "", ""])


def status(path: str) -> str:
    """What the statuses mean that are not as the table at the top has them."""
    page = manual.PAGES.get(path, manual.Page())
    done = f"Status 0: {page.done}; 130: {page.interrupted}." if page.done != manual.DONE else ""
    fails = f"Status 1: {page.fails}." if page.fails else ""
    return f"{' '.join(filter(None, (done, fails)))}\n\n" if done or fails else ""
