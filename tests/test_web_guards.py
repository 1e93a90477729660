"""Whom the web page answers, and what each answer forbids a browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from esper.errors import SettingError
from esper.web.app import STATIC
from esper.web.guards import answers_to, is_loopback
from esper.web.tokens import Token, chosen
from tests.web_kit import SECRET, site, visiting

PATHS = (
    "/",
    "/timeline",
    "/seed?id=s0",
    "/api/seed?id=s0",
    "/api/commands",
    "/static/main.js",
    "/static/base.css",
    "/no",
)
OURS = [path for path in STATIC.iterdir() if not path.name.startswith("uPlot")]


@pytest.mark.parametrize("path", PATHS)
async def test_every_answer_allows_scripts_of_this_server_alone(path: str) -> None:
    async with visiting(site()) as client:
        headers = (await client.get(path)).headers

    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'" and policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9000", "[::1]:8470", "192.0.2.7", "named.example:80"])
async def test_it_answers_to_its_names_and_to_addresses(host: str) -> None:
    async with visiting(site(), host) as client:
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8470", "1.2.3"])
async def test_a_name_that_was_pointed_here_by_others_reads_nothing(host: str) -> None:
    async with visiting(site(), host) as client:
        answers = [await client.get(path) for path in PATHS]

    assert {answer.status_code for answer in answers} == {421}
    assert not answers_to("", {"localhost"})


def test_only_this_machine_reaches_a_loopback_address() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "192.0.2.7", "named.example"))


def test_pages_hold_no_script_no_style_and_no_other_host() -> None:
    page = (STATIC / "page.html").read_text()

    assert "<style" not in page and "style=" not in page and not re.search(r"<script(?![^>]*src=)", page)
    assert not re.search(r"\son\w+=", page)
    for path in OURS:
        hosts = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]+[^\s\"']*", path.read_text()))
        assert hosts <= {"http://www.w3.org/2000/svg"}, path.name


def test_no_script_of_ours_makes_markup_of_a_string() -> None:
    makers = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser")

    assert [path.name for path in OURS if makers.search(path.read_text())] == []


def test_what_is_vendored_has_its_licence_beside_it() -> None:
    assert "MIT" in (STATIC / "uPlot.LICENSE.txt").read_text()


def test_a_token_is_taken_from_the_header_alone_and_whole() -> None:
    token = Token(SECRET)

    assert token.allows(f"Bearer {SECRET}") and token.allows(f"bearer {SECRET}")
    refused = ("", SECRET, f"Basic {SECRET}", f"Bearer {SECRET[:-1]}", f"Bearer {SECRET}x", "Bearer ")
    assert not any(token.allows(each) for each in refused)


def test_a_token_file_is_private_and_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPER_WEB_TOKEN", raising=False)
    path = tmp_path / "token"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o644)
    with pytest.raises(SettingError, match="mode 0600"):
        chosen(path)

    path.chmod(0o600)
    token = chosen(path)
    assert token is not None and token.allows(f"Bearer {SECRET}")

    path.write_text("short")
    with pytest.raises(SettingError, match="at least 16") as refused:
        chosen(path)
    assert "short" not in str(refused.value)
    assert chosen(None) is None


def test_a_token_that_no_header_can_carry_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("größer-als-sechzehn-zeichen")
    path.chmod(0o600)
    monkeypatch.setenv("ESPER_WEB_TOKEN", f" {SECRET}\n")

    with pytest.raises(SettingError, match="ASCII") as refused:
        chosen(path)
    token = chosen(None)

    assert "sechzehn" not in str(refused.value)
    assert token is not None and token.allows(f"Bearer {SECRET}")
