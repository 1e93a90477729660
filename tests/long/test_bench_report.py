"""The report: one page that needs nothing else, and the same as Markdown."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from esper.bench.figures import Figure
from esper.bench.history.store import Entry, Session
from esper.bench.output import markdown
from esper.bench.registry import registered
from esper.bench.report import charts, page, sizes, spread
from tests.figure_kit import SAMPLES, absent, beside, document, timed

VOID = {"meta", "br", "link", "img", "input"}


class Page(HTMLParser):
    """Collects elements, and notes each end without a start."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.strays: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.strays.append(tag)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def sessions(num: int) -> list[Session]:
    entries = [Entry("sum", "10 numbers", "loop", "p50", 3.0 + at, "ms", 3.0 + at) for at in range(num)]
    return [Session(1.7e9 + 86_400.0 * at, "c" * 40, False, "quick", 1.0, (each,)) for at, each in enumerate(entries)]


def sized(shape: str, value: float, arm: str = "loop", row: str = "sum") -> Figure:
    return replace(timed(row, arm, value, shape), samples=())


def test_the_page_is_whole_and_asks_no_other_host_for_anything() -> None:
    text = page.html(document(), sessions(3))

    read = Page(text)
    targets = [value for _, attributes in read.elements for value in map(attributes.get, ("src", "href", "data"))]
    assert (read.open, read.strays) == ([], [])
    assert all(target.startswith("#") for target in targets if target is not None)
    assert not read.all("script") and not read.all("link")
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/)", text)


def test_each_drawing_is_described_and_stands_beside_its_numbers() -> None:
    read = Page(page.html(document(), sessions(3)))

    labels = [each.get("aria-label") or "" for each in read.all("svg")]
    assert len(labels) == len(read.all("figcaption")) == 2
    assert "loop: median 3 ms, quartiles 2.25 to 4" in labels[0]
    assert "earlier runs" in labels[1] and "5 ms" in labels[1]
    assert len(read.all("details")) == 1


def test_earlier_runs_are_those_of_the_effort_that_have_the_row_the_first_and_the_last_with_their_day() -> None:
    one, two, three = sessions(3)
    other = replace(three, at_s=1.71e9, entries=())
    slow = replace(two, mode="full", entries=(replace(two.entries[0], value=77.0),))

    read = Page(page.html(document(), [one, slow, two, three, other]))

    [drawn] = [label for each in read.all("svg") if "earlier runs" in (label := each.get("aria-label") or "")]
    assert drawn.endswith("loop: 11-14 22:13 3 ms, 11-16 22:13 5 ms")


def test_an_arm_has_one_colour_in_all_drawings_of_its_row() -> None:
    ours = {"ours": [charts.Point(0, "a", 1.0), charts.Point(1, "b", 2.0)]}

    drawn = charts.curves("sum", "ms", ours, arms=["loop", "again", "ours"])

    assert "var(--series-2)" in drawn and "var(--series-0)" not in drawn


def test_links_of_the_page_lead_to_one_place_each_also_of_a_family_called_as_a_section() -> None:
    made = replace(document(), families={"sum": "machine", "memory": "methods"})

    read = Page(page.html(made))

    places = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len({*places}) == len(places)
    assert {f"#{place}" for place in places} >= {each["href"] for each in read.all("a")}


def test_an_arm_alone_is_drawn_in_the_order_in_which_it_went_on() -> None:
    memory = replace(timed(arm="soak"), stat="RSS", unit="MB", samples=tuple(570.0 + at / 100 for at in range(1_000)))

    [times, sizes] = Page(page.html(document(timed(arm="soak"), memory))).all("svg")

    assert "sum, p50, in order. soak: 1 1 ms, 10 90 ms" in (times.get("aria-label") or "")
    assert "sum, RSS, in order. soak: 1 570 MB" in (sizes.get("aria-label") or "")


def test_what_lies_far_from_zero_fills_its_drawing() -> None:
    found = spread.spread_of("a", "MB", [570.0, 571.0, 572.0, 573.0])

    drawn = charts.boxes("memory", [found, replace(found, arm="b")])

    assert re.findall(r'<text[^>]*class="major">0</text>', drawn) == []
    assert ">570<" in drawn and ">573<" in drawn


def test_drawing_leaves_no_importer_behind() -> None:
    page.html(document())

    assert [finder for finder in sys.meta_path if not hasattr(finder, "find_spec")] == []


def test_there_are_as_many_boxes_as_arms_however_many() -> None:
    figures = [timed(arm=f"arm {number}") for number in range(20)]

    [drawing] = Page(page.html(document(*figures))).all("svg")

    assert all(f"arm {number}: median" in (drawing.get("aria-label") or "") for number in range(20))


def test_what_others_named_is_text_and_never_an_element() -> None:
    evil = "<script>alert(1)</script>\"'&"
    figure = replace(timed(evil, evil), shape=evil, label=evil, unit=evil)

    read = Page(page.html(document(figure, replace(absent(), label=evil))))

    assert (read.open, read.strays, read.all("script")) == ([], [], [])


def test_figures_targets_machine_and_methods_are_on_the_page() -> None:
    text = re.sub(r"<[^>]+>", " ", page.html(document()))

    said = " ".join(text.split())
    for words in ("1.200 [1.140, 1.260] x loop, slower", "&lt;= 2 missed", "not measured: no GPU", "Test CPU, 2 cores"):
        assert words in said
    for words in ("OMP_NUM_THREADS=1", "0123456789abcdef", "95 % interval by bootstrap", "at least 30 rounds"):
        assert words in said


def test_a_spread_is_that_of_numpy_with_tukeys_fences() -> None:
    found = spread.spread_of("loop", "ms", SAMPLES)

    quartile, median, upper = np.percentile(SAMPLES, [25, 50, 75])
    assert (found.quartile, found.median, found.upper) == (quartile, median, upper)
    assert (found.low, found.high, found.most, found.outliers) == (1.0, 5.0, 90.0, 1)


def test_rows_of_several_sizes_make_a_curve_over_them() -> None:
    figures = [sized("32 x 10", 1.0), sized("128 x 10", 3.0, row="sum-128"), sized("256 x 1,000", 9.0, row="sum-256")]

    [(row, arms)] = sizes.scaling([*figures, sized("other words", 1.0, "numpy")]).items()

    assert row == "sum"
    assert [(point.at, point.label, point.value) for point in arms["loop"]] == [
        (320.0, "32 x 10", 1.0),
        (1280.0, "128 x 10", 3.0),
        (256_000.0, "256 x 1,000", 9.0),
    ]


@pytest.mark.parametrize("shapes", [("a packet", "a frame"), ("10 sites", "10 sites"), ("10 sites", "10 seeds")])
def test_shapes_that_are_no_sizes_make_no_curve(shapes: tuple[str, str]) -> None:
    assert sizes.scaling([sized(shape, 1.0) for shape in shapes]) == {}


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 1.0), (0.31, 5.9), (-3.0, 12.0), (1e-6, 2e-6)])
def test_ticks_are_few_round_and_enclose_what_is_drawn(low: float, high: float) -> None:
    found = charts.ticks(low, high, logarithmic=False)

    assert 2 <= len(found) <= 9
    assert found[0] <= low + 1e-12 and found[-1] >= high - 1e-12


def test_logarithmic_ticks_are_powers_of_ten_around_what_is_drawn() -> None:
    assert charts.ticks(0.02, 700.0, logarithmic=True) == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0, 1000.0])


def test_markdown_is_dated_and_names_machine_commands_and_figures() -> None:
    text = markdown.page(document(timed(), beside(1.2), replace(absent(), arm="a|b")))

    assert "Written by the suite, 2023-11-14 22:13 UTC" in text
    assert "Test CPU, 2 cores" in text and "esper bench run sum memory --quick --seed 0" in text
    assert "| numpy | p50 | 3.6 ms | 10 | 1.200 [1.140, 1.260] x loop, slower | <= 2 missed, aim <= 1 missed |" in text
    assert "not measured: no GPU: a\\|b" in text
    assert "| memory | a\\|b | mean | not measured: no GPU | <= 8 |" in text
    assert not [line for line in text.splitlines() if line != line.rstrip()]


def test_the_command_of_a_page_names_its_rows_unless_it_has_all() -> None:
    many = [timed(row=f"row-{number}") for number in range(40)]
    every = [timed(row=name) for name in registered()]

    assert "esper bench run row-0 row-1 " in markdown.page(document(*many))
    assert "esper bench run --quick --seed 0 --out bench/out\n" in markdown.page(document(*every))
    assert "--out bench/out  # with --from the files of row-0\n" in markdown.page(document(*every, many[0]))
