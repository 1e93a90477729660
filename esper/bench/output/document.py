"""What a run came to, as a file: report.json, which `esper bench report` and `compare` read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from esper.bench.effort import Effort
from esper.bench.figures import Figure
from esper.bench.machine import Machine
from esper.bench.output import lines
from esper.bench.output.placed import place
from esper.bench.results import Alarm, Results, Sitting
from esper.errors import EsperError, SettingError

EXPECTED = "a report.json that `esper bench run --out DIR` has written"
_MACHINE, _EFFORT, _ALARMS = TypeAdapter(Machine), TypeAdapter(Effort), TypeAdapter(tuple[Alarm, ...])
_SITTINGS = TypeAdapter(tuple[Sitting, ...])


@dataclass(frozen=True, slots=True)
class Document:
    """Results, and the family of each row in them."""

    results: Results
    families: Mapping[str, str]

    def family(self, figure: Figure) -> str:
        return lines.family_of(figure.row, self.families)

    @property
    def by_family(self) -> dict[str, list[Figure]]:
        """In the order in which they were measured."""
        grouped: dict[str, list[Figure]] = {}
        for figure in self.results.figures:
            grouped.setdefault(self.family(figure), []).append(figure)
        return grouped


def write(document: Document, path: Path) -> None:
    """Samples included, the file whole or not at all. The folder is made where it isn't there."""
    results = document.results
    said = {
        "machine": results.machine.as_fields(),
        "effort": asdict(results.effort),
        "started_s": results.started_s,
        "ended_s": results.ended_s,
        "failures": [str(failure) for failure in results.failures],
        "alarms": [asdict(alarm) for alarm in results.alarms],
        "took_s": results.took_s,
        "sittings": [asdict(sitting) for sitting in results.sittings],
        "left": results.left,
        "figures": [lines.as_fields(each, document.family(each), samples=True) for each in results.figures],
    }
    place(json.dumps(said, indent=1) + "\n", path)


def read(path: Path) -> Document:
    """SettingError where the file isn't there, or is no such file."""
    try:
        said = json.loads(path.read_text())
        return _document(said)
    except OSError as error:
        raise SettingError("the file of results", str(path), f"{EXPECTED} ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # JSON's and pydantic's errors are ValueErrors
        told = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise SettingError("the file of results", str(path), f"{EXPECTED}: {told}") from None


def _document(said: Mapping[str, Any]) -> Document:
    machine = {name: value for name, value in said["machine"].items() if name != "key"}
    results = Results(
        figures=tuple(map(lines.as_figure, said["figures"])),
        failures=tuple(map(EsperError, said["failures"])),
        alarms=_ALARMS.validate_python(said["alarms"]),
        machine=_MACHINE.validate_python(machine),
        effort=_EFFORT.validate_python(said["effort"]),
        started_s=float(said["started_s"]),
        ended_s=float(said["ended_s"]),
        took_s={row: float(seconds) for row, seconds in said.get("took_s", {}).items()},
        sittings=_SITTINGS.validate_python(said.get("sittings", ())),
        left=tuple(map(str, said.get("left", ()))),
    )
    return Document(results, {each["row"]: each["bench"] for each in said["figures"]})
