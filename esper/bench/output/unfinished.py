"""The rows that a long run has done, a file each below its folder: begun anew, it goes on where it was."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import quote

from esper.bench.effort import Effort
from esper.bench.machine import Machine
from esper.bench.output import document
from esper.bench.results import Results
from esper.errors import SettingError

NAME = "unfinished"


class Unfinished:
    """Knows nothing of how rows are measured. Each file is such a report.json as that of a whole run."""

    def __init__(self, folder: Path, families: Mapping[str, str]) -> None:
        self.folder, self._families = folder / NAME, families

    def done(self, rows: Collection[str], effort: Effort, machine: Machine) -> list[Results]:
        """What each row came to, in the order in which they were done.

        Raises SettingError where that is of another run: of another effort, another machine, or a row that is none of
        these. Another commit is told in the report.
        """
        found = [document.read(file).results for file in self.folder.glob("*.json")]
        for results in found:
            others = [row for row in results.took_s if row not in rows]
            if others or results.effort != effort or results.machine.key != machine.key:
                what = f"the row {others[0]}" if others else "another effort or seed, or another machine"
                raise SettingError(
                    "the unfinished run", f"{self.folder}, of {what}", "one of these rows; --anew forgets it"
                )
        return sorted(found, key=lambda results: results.ended_s)

    def add(self, results: Results) -> None:
        """Of one row that is done: on disk when this returns."""
        [row] = results.took_s
        document.write(document.Document(results, self._families), self.folder / f"{quote(row, safe=' ')}.json")

    def forget(self) -> None:
        """As the report of the whole run has it all, or nobody wants it."""
        shutil.rmtree(self.folder, ignore_errors=True)
