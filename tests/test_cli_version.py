"""`esper --version`: the release of Esper and of what it runs on, in one line and at once."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import version

from typer.testing import CliRunner

from esper.cli.main import app, installed
from esper.version import __version__

TOLD = "import sys\nfrom esper.cli.main import app\ntry: app(['--version'])\nfinally: print('torch' in sys.modules)"


def test_versions_are_told_in_one_line_that_begins_with_espers_own() -> None:
    result = CliRunner().invoke(app, ["--version"])

    beneath = f"python {platform.python_version()}, torch {version('torch')}, redis {version('redis')}"
    assert (result.exit_code, result.output) == (0, f"esper {__version__}, {beneath}\n")


def test_versions_are_told_without_loading_torch() -> None:
    answer = subprocess.run([sys.executable, "-c", TOLD], check=True, capture_output=True, text=True, timeout=150)

    assert answer.stdout.split()[0] == "esper" and answer.stdout.split()[-1] == "False"


def test_a_package_that_is_missing_is_told_as_such() -> None:
    assert installed("no-package-of-this-name") == "no-package-of-this-name not installed"
