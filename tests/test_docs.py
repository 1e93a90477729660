"""What README and docs/ say is so."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from esper.bus.names import STREAMS

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
BUS = ROOT / "docs" / "internals" / "bus.md"
PROMISES = ROOT / "docs" / "promises.md"
DECISIONS = ROOT / "docs" / "decisions.md"
SEEDS = ROOT / "docs" / "seeds.md"
# Classes of the three documents, those that they use and do not define included, and what they report.
NAMED = [
    "StaticKDLoss",
    "CheckpointedTeacher",
    "CheckpointTelemetry",
    "KasminaConfig",
    "KasminaLayer",
    "KasminaKernelManager",
    "GPUKernelCache",
    "GPUKernel",
    "UrzaLibraryClient",
    "LeylineAdaptationHandler",
    "LeylineTelemetryReporter",
    "GradientIsolatedSeed",
    "GradientIsolationMonitor",
    "IsolatedOptimizerManager",
    "OptimizerMessageHandler",
    "TeacherForwardPassManager",
    "GPUStateTensor",
    "KernelExecutionContract",
    "KasminaPerformanceValidator",
    "KasminaBenchmarkSuite",
    "PerformanceValidationContract",
    "CommandProcessor",
    "KasminaCommand",
    "KDConfig",
    "MonotonicTimer",
    "GradientIsolationViolationError",
    "MessagePriority",
    "CommandType",
    "SeedOperation",
    "SeedLifecycleStage",
    "MetricType",
    "OptimizerCommandType",
    "teacher_registered",
    "teacher_params_registered",
    "optimizer_created",
    "seed_optimizer_created",
    "memory_before_checkpoint",
    "memory_after_checkpoint",
    "memory_saved_gb",
    "checkpoint_overhead_ms",
    "recomputation_count",
]


def between(path: Path, start: str, end: str) -> list[str]:
    """Lines of a file from the one that begins with `start` to the one that begins with `end`, both left out."""
    lines = path.read_text().splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(start))
    last = next(at for at, line in enumerate(lines) if at > first and line.startswith(end))
    return lines[first + 1 : last]


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def tables(path: Path) -> list[list[str]]:
    """Cells of every table row of a page, headings and rulings left out."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("| ")]
    return [cells(line) for line in lines if not line.startswith("| seed |")]


def tree(path: Path) -> dict[str, str]:
    """Path -> words of the tree in a page: two spaces deeper is one folder down."""
    folders: list[str] = []
    named: dict[str, str] = {}
    for line in between(path, "<!-- tree -->", "<!-- end -->"):
        found = re.fullmatch(r"( {4,})(\S+)(?: +(.*))?", line)
        if found:
            depth = (len(found[1]) - 4) // 2
            folders = [*folders[:depth], found[2]]
            named["".join(folders)] = found[3] or ""
    return named


def headings(page: Path) -> set[str]:
    """Names by which a page's headings are linked to, as the site makes them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def defines(test: str) -> bool:
    """Whether `tests/test_x.py::test_y` names a test that exists."""
    path, _, name = test.partition("::")
    if not (ROOT / path).is_file():
        return False
    nodes = ast.walk(ast.parse((ROOT / path).read_text()))
    return any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name for node in nodes)


def resolves(dotted: str) -> bool:
    """Whether a dotted name can be loaded; a field of a message or of a frozen class counts."""
    try:
        resolve_name(dotted)
    except (ImportError, AttributeError):
        owner, _, field = dotted.rpartition(".")
        return field in fields(owner)
    return True


def fields(dotted: str) -> set[str]:
    try:
        owner = resolve_name(dotted)
    except (ImportError, AttributeError):
        return set()
    descriptor = getattr(owner, "DESCRIPTOR", None)
    declared = set(getattr(owner, "__annotations__", {}))
    return declared | (set(descriptor.fields_by_name) if descriptor is not None else set())


def test_the_readme_shows_the_controller_script_as_it_is() -> None:
    shown = between(README, "```python", "```")

    assert shown == (ROOT / "examples" / "grow_digits.py").read_text().splitlines()


def test_the_readme_fits_the_two_commands_that_the_makefile_has() -> None:
    named = set(re.findall(r"^make ([a-z-]+)", "\n".join(between(README, "```sh", "```")), re.MULTILINE))

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {"demo", "test"} <= named <= targets


def test_every_path_of_the_readme_tree_exists() -> None:
    assert [path for path in tree(README) if not (ROOT / path).exists()] == []


def test_the_readme_tree_leaves_out_no_folder() -> None:
    written = (path for top in ("esper", "workers", "tests", "bench") for path in ROOT.glob(f"{top}/**/*.py"))
    folders = {f"{path.parent.relative_to(ROOT)}/" for path in written}

    assert folders <= tree(README).keys()


def test_no_line_of_the_readme_tree_takes_more_than_eight_words() -> None:
    wordy = {path: words for path, words in tree(README).items() if not 1 <= len(words.split()) <= 8}

    assert wordy == {}


def test_the_table_of_streams_is_the_one_in_the_code() -> None:
    written = [cells(line) for line in between(BUS, "<!-- table: esper.bus.names.STREAMS", "<!-- end -->")[2:]]

    rows = [[f"`:{one.name}`", "yes" if one.regional else "", one.writers, one.readers] for one in STREAMS]

    assert written == [[*row, one.group, one.trimming] for row, one in zip(rows, STREAMS, strict=True)]


def test_the_architecture_is_one_page() -> None:
    assert len(ARCHITECTURE.read_text()) <= 10_000


def test_every_decision_is_a_bold_sentence_with_its_date_and_short() -> None:
    areas = DECISIONS.read_text().split("\n## ")[2:]  # behind the index and the words on figures
    entries = [entry.strip() for area in areas for entry in area.split("\n\n")[1:]]
    headed = re.compile(r"\*\*.+?\.\*\* \(\d{4}-\d\d-\d\d\) ", re.DOTALL)
    shapeless = [entry for entry in entries if not headed.match(entry)]

    assert len(entries) > 100
    assert [entry[:80] for entry in shapeless] == []
    assert {entry[:80]: len(entry) for entry in entries if len(entry) > 1_500} == {}


def test_decisions_of_an_area_stand_newest_first() -> None:
    areas = DECISIONS.read_text().split("\n## ")[2:]
    dated = {area.partition("\n")[0]: re.findall(r"^\*\*[^*]+\*\* \(([\d-]+)\)", area, re.MULTILINE) for area in areas}

    assert sum(map(len, dated.values())) > 100
    assert {area: dates for area, dates in dated.items() if dates != sorted(dates, reverse=True)} == {}


def test_every_promise_names_a_test_that_exists() -> None:
    promises = "\n".join(between(PROMISES, "<!-- promises", "<!-- end -->")).split("\n- ")[1:]
    named = [re.findall(r"`(tests/\S+?::\w+)`", promise) for promise in promises]

    assert len(promises) > 40
    assert all(named)
    assert [test for tests in named for test in tests if not defines(test)] == []


def test_every_name_given_for_one_of_the_seeds_resolves() -> None:
    ours = {name for row in tables(SEEDS) for name in re.findall(r"`(esper\.[\w.]+)`", row[1])}

    assert len(ours) > 40
    assert sorted(name for name in ours if not resolves(name)) == []


def test_every_row_of_the_seeds_has_an_answer() -> None:
    rows = tables(SEEDS)

    assert len(rows) > 150
    assert [row for row in rows if not re.match(r"`esper\.|`tests/|`bench/|not yet|refused", row[1])] == []


def test_every_test_named_in_the_seeds_exists() -> None:
    named = {test for row in tables(SEEDS) for test in re.findall(r"`(tests/\S+?::\w+)`", row[1])}
    files = {file for row in tables(SEEDS) for file in re.findall(r"`(tests/[^`:]+)`", row[1])}

    assert sorted(test for test in named if not defines(test)) == []
    assert files and sorted(file for file in files if not (ROOT / file).is_file()) == []


@pytest.mark.parametrize("name", NAMED)
def test_what_the_documents_name_has_a_row_in_the_seeds(name: str) -> None:
    assert [row[0] for row in tables(SEEDS)].count(f"`{name}`") == 1


@pytest.mark.parametrize("page", sorted([README, *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", sorted([README, *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\(((?!https?:)[^)#]*)#([^)]+)\)", page.read_text())

    lost = [(there, name) for there, name in links if name not in headings(page.parent / there if there else page)]

    assert lost == []


def test_every_page_stands_in_the_navigation() -> None:
    named = set(re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))

    assert named == {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}


def test_every_row_of_the_fault_table_stands_in_the_guarantees() -> None:
    rows = {path.stem for path in (ROOT / "tests" / "faults" / "rows").glob("[!_]*.py")}
    table = (ROOT / "docs" / "guarantees.md").read_text().partition("<!-- rows -->")[2].partition("<!-- end -->")[0]

    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == rows
