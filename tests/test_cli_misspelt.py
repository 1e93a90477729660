"""A command that does not exist is told in one line, with the one that was probably meant."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from esper.cli.main import app


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verfy"], "COMMAND is 'verfy'; expected one that `esper --help` lists (near: 'verify')"),
        (["frobnicate"], "COMMAND is 'frobnicate'; expected one that `esper --help` lists"),
        (
            ["germinate"],
            "COMMAND is 'germinate'; expected one that `esper --help` lists; `esper publish germinate` is one",
        ),
        (["publish", "cul"], "No such command 'cul'. Did you mean 'cull'?"),
    ],
)
def test_a_misspelt_command_is_one_line(words: list[str], line: str) -> None:
    result = CliRunner().invoke(app, words)

    assert (result.exit_code, result.output) == (2, f"esper: {line}\n")
