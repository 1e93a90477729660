"""What `import esper` offers, as a user sees it who explores it."""

from __future__ import annotations

import inspect
import pydoc
from dataclasses import fields
from typing import Any, get_type_hints

import pytest

import esper
from esper.client import Receipt
from esper.session import Step
from esper.session.options import Options, SessionOptions


def test_dir_lists_what_is_public_and_nothing_of_how_it_is_found() -> None:
    assert [name for name in dir(esper) if not name.startswith("__")] == ["Controller", "Session", "attach"]
    assert "__version__" in dir(esper)


def test_help_tells_what_each_public_name_is_for() -> None:
    told = pydoc.plain(pydoc.render_doc(esper))

    assert "class Controller(" in told and "class Session(" in told and "attach(model: " in told


@pytest.mark.parametrize("public", [esper.Controller, esper.Session, Receipt, Step])
def test_all_that_is_called_on_what_a_user_holds_has_types_and_a_docstring(public: type) -> None:
    calls: dict[str, Any] = dict(inspect.getmembers(public, inspect.isfunction))
    calls |= {name: each.fget for name, each in inspect.getmembers(public) if isinstance(each, property)}

    told = {
        name: bool(inspect.getdoc(call)) and "return" in inspect.get_annotations(call)
        for name, call in calls.items()
        if not name.startswith("_")
    }
    assert told == dict.fromkeys(told, True) != {}


def test_a_type_checker_is_told_of_every_option_of_attach() -> None:
    hints = get_type_hints(SessionOptions)

    assert get_type_hints(Options) == {each.name: hints[each.name] for each in fields(SessionOptions)}
