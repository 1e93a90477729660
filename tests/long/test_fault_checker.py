"""The checker of fault histories: what it calls broken, and that it knows nothing of the runtime."""

from __future__ import annotations

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.check import conserved, exactly_once, in_order, judge
from tests.faults.history import History, Record, whole_lines
from tests.faults.stated import issued_ms, key_id_of

ROOT = Path(__file__).resolve().parent.parent.parent


def frame(number: int, packets: int = 2, total: int = 10) -> Record:
    return {"frame": number, "packets": packets, "sum": total}


def counted(sequence: int, packets: int, total: float, values: int | None = None) -> Record:
    return {"sequence": sequence, "packets": packets, "values": packets if values is None else values, "sum": total}


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import statement, wherever it stands."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide what they name"
            yield from (str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names))


def file_of(module: str) -> Path | None:
    for path in (ROOT / f"{module.replace('.', '/')}.py", ROOT / module.replace(".", "/") / "__init__.py"):
        if path.exists():
            return path
    return None


def reached(module: str) -> set[str]:
    """Every module that importing this one may import, as far as it lies in this repository."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        path = file_of(name)
        if name not in found and path is not None:
            found.add(name)
            left += [*imported(path), *(name.rpartition(".")[0],)]
    return found


@pytest.mark.parametrize("judge", ["check", "check_rounds", "accounts"])
def test_a_judge_imports_nothing_of_the_runtime(judge: str) -> None:
    modules = reached(f"tests.faults.{judge}")

    assert "tests.faults.history" in modules, "the walk saw nothing"
    assert [module for module in modules if not module.startswith("tests")] == []


def test_nor_does_what_judges_know_of_envelopes_which_is_what_the_vectors_say() -> None:
    vectors = json.loads((ROOT / "docs" / "vectors.json").read_text())["vectors"]
    headers = [(bytes.fromhex(each["sealed"]), each["header"]) for each in vectors]

    assert reached("tests.faults.stated") <= {"tests.faults.stated", "tests.faults", "tests"}
    assert [key_id_of(sealed) for sealed, _ in headers] == [header["key_id"] for _, header in headers]
    assert [issued_ms(sealed) for sealed, _ in headers] == [int(h["issued_at_ns"]) // 1_000_000 for _, h in headers]


def test_the_walk_of_imports_sees_the_runtime_where_it_is_imported() -> None:
    assert "esper.bus.embedded" in reached("tests.faults.server")


def test_a_faultless_history_is_judged_so() -> None:
    assert not list(exactly_once(["a", "b"], ["a", "b"], ["b", "a"]))
    assert not list(conserved([frame(0), frame(1)], [frame(0), frame(1)], [counted(1, 3, 12.0), counted(2, 1, 8.0)]))
    assert not list(in_order(["1-0", "1-1", "10-0"]))


def test_what_was_never_acknowledged_may_have_happened_or_not() -> None:
    assert not list(exactly_once(["a", "b"], ["a"], ["a"]))
    assert not list(exactly_once(["a", "b"], ["a"], ["a", "b"]))
    assert not list(conserved([frame(0), frame(1)], [frame(0)], [counted(1, 2, 10.0)]))
    assert not list(conserved([frame(0), frame(1)], [frame(0)], [counted(1, 4, 20.0)]))


@pytest.mark.parametrize(
    ("published", "acknowledged", "applied", "sentence"),
    [
        (["a", "b"], ["a", "b"], ["a"], "1 of 2 acknowledged and never applied: b"),
        (["a"], ["a"], ["a", "a"], "1 of 1 applied more than once: a"),
        (["a", "b"], ["a"], ["a", "b", "b"], "1 of 2 applied more than once: b"),
        (["a"], ["a"], ["a", "x"], "1 of 2 applied and never published: x"),
        ([], ["a"], ["a"], "1 of 1 acknowledged and never published: a"),
    ],
)
def test_a_broken_promise_about_commands_is_named(
    published: list[str], acknowledged: list[str], applied: list[str], sentence: str
) -> None:
    assert sentence in list(exactly_once(published, acknowledged, applied))


@pytest.mark.parametrize(
    ("totals", "word"),
    [
        ([counted(1, 3, 20.0, values=4)], "packets counted: 3"),
        ([counted(1, 4, 20.0, values=3)], "values counted: 3"),
        ([counted(1, 4, 21.0)], "sum counted: 21.0"),
        ([counted(1, 4, 20.0), counted(2, 2, 10.0)], "packets counted: 6"),
        ([counted(1, 2, 10.0), counted(1, 2, 10.0)], "aggregates are numbered [1, 1]"),
        ([counted(1, 2, 10.0), counted(3, 2, 10.0)], "aggregates are numbered [1, 3]"),
    ],
)
def test_a_broken_promise_about_telemetry_is_named(totals: list[Record], word: str) -> None:
    frames = [frame(0), frame(1)]

    assert any(sentence.startswith(word) for sentence in conserved(frames, frames, totals))


@pytest.mark.parametrize("seen_as", [["1-0", "1-0"], ["1-1", "1-0"], ["10-0", "9-5"]])
def test_an_effect_that_was_written_down_twice_is_named(seen_as: list[str]) -> None:
    assert list(in_order(seen_as)) == [f"entry {seen_as[1]} was seen after {seen_as[0]}"]


def test_histories_are_read_from_the_files_of_all_roles(tmp_path: Path) -> None:
    with History(tmp_path, "publisher") as publisher, History(tmp_path, "witness") as witness:
        for name in ("a", "b"):
            publisher.note("published", id=name)
            publisher.note("acknowledged", id=name)
        publisher.note("published", **frame(0))
        publisher.note("acknowledged", **frame(0))
        witness.note("applied", id="a", seen_as="1-0")
        witness.note("applied", id="a", seen_as="2-0")
        witness.note("counted", **counted(1, 1, 5.0))

    assert list(judge(tmp_path)) == [
        "1 of 2 acknowledged and never applied: b",
        "1 of 1 applied more than once: a",
        "packets counted: 1; acknowledged 2, and 0 in doubt",
        "sum counted: 5.0; acknowledged 10, and 0 in doubt",
        "values counted: 1; acknowledged 2, and 0 in doubt",
    ]


def test_of_a_redis_that_falls_back_what_it_holds_in_the_end_counts(tmp_path: Path) -> None:
    with History(tmp_path, "publisher") as publisher, History(tmp_path, "witness") as witness:
        for name in ("a", "b"):
            publisher.note("published", id=name)
            publisher.note("acknowledged", id=name)
        for seen_as in ("1-0", "2-0"):  # the first went with its acknowledgement
            witness.note("applied", id="a", seen_as=seen_as)
        witness.note("applied", id="b", seen_as="3-0")
    held = [{"what": "applied", "id": "a", "seen_as": "2-0"}, {"what": "applied", "id": "b", "seen_as": "3-0"}]

    assert list(judge(tmp_path)) == ["1 of 2 applied more than once: a"]
    assert list(judge(tmp_path, held)) == []
    assert list(judge(tmp_path, held[1:])) == ["1 of 2 acknowledged and never applied: a"]
    assert list(judge(tmp_path, [*held, {**held[0], "seen_as": "4-0"}])) == ["1 of 2 applied more than once: a"]


def test_a_line_that_is_being_written_is_left_for_a_later_look() -> None:
    class Growing(io.RawIOBase):
        """A file whose writer is slow: each look comes to its end once more."""

        parts = iter([b"first\nsec", b"", b"ond\n", b""])

        def readable(self) -> bool:
            return True

        def readinto(self, room: Any) -> int:
            part = next(self.parts)
            room[: len(part)] = part
            return len(part)

    assert whole_lines(io.BufferedReader(Growing())) == [b"first\n"]
