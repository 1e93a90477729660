"""Whoever keeps a run going answers over a socket of its own: bounded, in JSON, to its owner alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from esper.errors import SettingError
from esper.runtime.crew import control
from esper.runtime.crew.control import ControlError, answering, ask


async def echo(request: control.Request) -> AsyncGenerator[dict[str, Any], None]:
    if request.get("do") == "fail":
        raise SettingError("role", "x", "one that is there")
    for number in range(3):
        yield {"number": number, "asked": request}


async def asked(path: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    return await asyncio.to_thread(lambda: list(ask(path, request, 10.0)))


async def raw(path: Path, sent: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


@pytest.fixture
def path(short_directory: Path) -> Path:
    return short_directory / "control"


async def test_lines_come_as_they_are_said_and_only_the_owner_may_ask(path: Path) -> None:
    async with answering(path, echo):
        assert path.stat().st_mode & 0o777 == 0o600
        assert await asked(path, {"do": "it"}) == [{"number": number, "asked": {"do": "it"}} for number in range(3)]

    assert not path.exists()


async def test_what_is_refused_is_an_error_with_its_sentence(path: Path) -> None:
    async with answering(path, echo):
        with pytest.raises(ControlError, match="role is 'x'; expected one that is there"):
            await asked(path, {"do": "fail"})


@pytest.mark.parametrize("sent", [b"ps\n", b"[1]\n", b"\x80\n", b'"ps"\n', b"[" * 4000 + b"\n"])
async def test_what_is_no_request_is_answered_by_a_sentence(path: Path, sent: bytes) -> None:
    async with answering(path, echo):
        answer = json.loads(await raw(path, sent))

    assert answer["ok"] is False
    assert "expected" in answer["error"]


async def test_a_request_without_end_is_cut_off(path: Path) -> None:
    async with answering(path, echo):
        assert await raw(path, b"x" * (4 * control.LONGEST_REQUEST_BYTES)) == b""
        assert len(await asked(path, {})) == 3


async def test_who_hangs_up_ends_what_was_asked_for(path: Path) -> None:
    ended = asyncio.Event()

    async def without_end(request: control.Request) -> AsyncGenerator[dict[str, Any], None]:
        try:
            yield request
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with answering(path, without_end):
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"do": "it"}\n')
        assert await reader.readline() == b'{"do": "it"}\n'
        writer.close()

        await ended.wait()


@pytest.mark.parametrize("num_bytes", [0, 1 << 20])  # more than the socket holds: it breaks while this is sent
async def test_more_callers_than_there_are_places_for_are_turned_away(path: Path, num_bytes: int) -> None:
    async with answering(path, echo):
        waiting = [await asyncio.open_unix_connection(path) for _ in range(control.MOST_CALLERS)]
        try:
            with pytest.raises(ControlError, match="hung up at"):
                await asked(path, {"do": "x" * num_bytes})
        finally:
            for _, writer in waiting:
                writer.close()
                await writer.wait_closed()


def test_where_nobody_listens_that_is_said(path: Path) -> None:
    with pytest.raises(ControlError, match="nobody answers at"):
        list(ask(path, {"do": "ps"}))


@pytest.mark.parametrize("sent", [b'{"name": "glo', b"nonsense\n"])
async def test_an_answer_that_is_torn_is_said(path: Path, sent: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(sent)
        writer.close()

    async with await asyncio.start_unix_server(answer, path):
        with pytest.raises(ControlError, match="hung up at"):
            await asked(path, {"do": "ps"})
