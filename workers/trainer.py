"""A data-parallel trainer of the digits, steered: the process that `esper demo` and compose start."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import Annotated

from pydantic import Field

from esper.errors import EsperError
from esper.runtime import gc_policy, logging, process, settings


class TrainerSettings(settings.Settings):
    """esper.attach() reads the rest by itself."""

    name: settings.Name = Field(default_factory=lambda: f"worker-{os.environ.get('RANK', 0)}")
    """Else worker-0, or of several ranks worker-<rank>."""
    max_epochs: Annotated[int, Field(ge=1)] = 100_000
    """How many it trains."""
    stop_file: Path | None = None
    """A file that ends the training once it is there."""
    stop_status: Annotated[int, Field(ge=0, le=255)] = 0
    """Exit status where the file has ended it before its last epoch; 75 where its group is to begin anew."""


def main() -> None:
    """Train until told to stop. torch comes after the settings, which may be refused."""
    chosen = settings.load(TrainerSettings)
    logging.configure(chosen, role="trainer", worker=chosen.name, run=chosen.run)
    gc_policy.end_soon()
    with gc_policy.loading():
        import_module("esper.session.attach")  # what its first line with esper would load, and most of torch with it
        from esper.examples.train_digits import train
    try:
        done = train(chosen.max_epochs, chosen.stop_file)
    except EsperError as error:
        raise SystemExit(process.told(error)) from None
    if not done:
        raise SystemExit(chosen.stop_status)


if __name__ == "__main__":
    main()
