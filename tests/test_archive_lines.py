"""Lines of a run's log come back as they went in, and a line that is none is refused by its number."""

from __future__ import annotations

import pytest

from esper.errors import SettingError
from esper.leyline.archive import (
    MOST_LINE_BYTES,
    STREAMS,
    Entry,
    Line,
    LogHeader,
    LogTrailer,
    decode_line,
    encode,
    encode_line,
)

ENTRY = Entry("commands", "1700000000000-3", bytes(range(256)))


@pytest.mark.parametrize("line", [ENTRY, LogHeader("digits-0a1b2c3d", ("0000002a",)), LogTrailer(3, "ab" * 32)])
def test_a_line_comes_back_as_it_went_in(line: Line) -> None:
    assert decode_line(encode_line(line), 1) == line


def test_an_entry_is_the_object_that_the_format_promises() -> None:
    line = encode_line(Entry("decisions", "1-0", b"\x00\xff"))
    assert line == b'{"stream":"decisions","id":"1-0","m":"AP8="}\n'


def test_an_exported_log_has_a_head_entries_and_a_foot() -> None:
    lines = [decode_line(raw, 1) for raw in encode(LogHeader("r-1"), [ENTRY, ENTRY])]

    assert lines[:3] == [LogHeader("r-1"), ENTRY, ENTRY]
    assert isinstance(lines[3], LogTrailer)
    assert lines[3].num_entries == 2


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"stream":"commands","id":"1-0","m":"AP8="}', "cut short"),
        (b"[]\n", "a JSON object"),
        (b"{\n", "a JSON object"),
        (b"\xff\xfe\n", "a JSON object"),
        (b"[" * 100_000 + b"\n", "a JSON object"),
        (b"{}\n", f"one of {', '.join(STREAMS)}"),
        (b'{"stream":"votes","id":"1-0","m":""}\n', "one of"),
        (b'{"stream":["commands"],"id":"1-0","m":""}\n', "one of"),
        (b'{"stream":"commands","id":"1","m":""}\n', "an entry id"),
        (b'{"stream":"commands","id":"1-0","m":7}\n', "base64"),
        (b'{"stream":"commands","id":"1-0","m":"*"}\n', "base64"),
        (b'{"stream":"commands","id":"1-0","m":"\xc3\xa9"}\n', "base64"),
        (b'{"esper_log":2,"run":"r"}\n', "format 1"),
        (b'{"esper_log":1,"run":""}\n', "a head"),
        (b'{"entries":"many"}\n', "a foot"),
        (b" " * (MOST_LINE_BYTES + 1), "at most"),
    ],
)
def test_a_line_that_is_none_is_refused_by_its_number(raw: bytes, why: str) -> None:
    with pytest.raises(SettingError, match=f"line 7 of the log is .*{why}"):
        decode_line(raw, 7)
