"""A data-parallel trainer of the digits, steered: the process that `esper demo` and compose start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from esper.errors import EsperError
from esper.examples.train_digits import train
from esper.runtime import logging, process, settings


class TrainerSettings(settings.Settings):
    """esper.attach() reads the rest by itself."""

    max_epochs: Annotated[int, Field(ge=1)] = 100_000
    stop_file: Path | None = None
    stop_status: Annotated[int, Field(ge=0, le=255)] = 0
    """Exit status where the file has ended it before its last epoch; 75 where its group is to begin anew."""


def main() -> None:
    """Train until told to stop."""
    chosen = settings.load(TrainerSettings)
    logging.configure(chosen, role="trainer", worker=chosen.name, run=chosen.run)
    try:
        done = train(chosen.max_epochs, chosen.stop_file)
    except EsperError as error:
        raise SystemExit(process.told(error)) from None
    if not done:
        raise SystemExit(chosen.stop_status)


if __name__ == "__main__":
    main()
