"""Only this machine, with the token of this run and from the studio's own page, is answered."""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

import pytest
from tests.studio.serving import DIGITS, served, workspace

from openinfer.studio.guard import Guard
from openinfer.studio.server import StudioServer


@pytest.fixture(scope="module")
def server() -> Iterator[StudioServer]:
    with served(workspace(*DIGITS)) as found:
        yield found


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def asked(
    guard: Guard, path: str, method: str = "GET", body: str | None = None, headers: dict[str, str] | None = None
) -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", guard.port, timeout=10)) as connection:
        connection.request(method, path, body, headers or {})
        found = connection.getresponse()
        return Answer(found.status, {name.lower(): value for name, value in found.getheaders()}, found.read())


@pytest.mark.parametrize("path", ["/", "/studio.js", "/call/open", "/wrong-token/", "/%00/", "//", "/..%2f"])
def test_whoever_has_no_token_is_refused(server: StudioServer, path: str) -> None:
    assert asked(server.guard, path).status == 403
    assert asked(server.guard, path, "POST", "{}").status == 403


def test_other_addresses_of_this_machine_are_not_listened_on(server: StudioServer) -> None:
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection("127.0.0.2", server.guard.port, timeout=10).connect()


def test_every_run_has_a_token_of_its_own() -> None:
    tokens = {Guard.new(1).token for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 32


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=lambda headers: "-".join(f"{name}-{value}" for name, value in headers.items()),
)
def test_foreign_pages_are_refused_even_with_the_token(server: StudioServer, headers: dict[str, str]) -> None:
    assert asked(server.guard, f"{server.guard.prefix}/call/open", "POST", "{}", headers).status == 403
    assert asked(server.guard, f"{server.guard.prefix}/", headers=headers).status == 403


def test_the_page_may_load_its_own_files_only(server: StudioServer) -> None:
    found = asked(server.guard, f"{server.guard.prefix}/")
    rules = found.headers.get("content-security-policy", "")
    assert found.status == 200
    assert "default-src 'none'" in rules
    assert "script-src 'self'" in rules
    assert "unsafe" not in rules
    assert found.headers.get("x-frame-options", "") == "DENY"
    assert found.headers.get("referrer-policy", "") == "no-referrer"


def test_its_own_page_is_answered(server: StudioServer) -> None:
    origin = {"Origin": f"http://127.0.0.1:{server.guard.port}", "Sec-Fetch-Site": "same-origin"}
    found = asked(server.guard, f"{server.guard.prefix}/call/open", "POST", "{}", origin)
    assert found.status == 200
    assert json.loads(found.body)["answer"]["name"] == "digits.oig"


@pytest.mark.parametrize("name", ["../pyproject.toml", "..%2f..%2fpyproject.toml", "calls.py", "SOURCES.sha256"])
def test_no_other_file_is_served(server: StudioServer, name: str) -> None:
    assert asked(server.guard, f"{server.guard.prefix}/{name}").status in (403, 404)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("fly", "{}"),
        ("node", '{"index": "x"}'),
        ("node", '{"more": 1}'),
        ("node", "[]"),
        ("file", '{"path": "/etc/passwd"}'),
    ],
)
def test_calls_that_make_no_sense_are_refused_in_words(server: StudioServer, name: str, body: str) -> None:
    found = asked(server.guard, f"{server.guard.prefix}/call/{name}", "POST", body)
    answer = json.loads(found.body)
    assert found.status == 200
    assert answer["ok"] is False
    assert answer["problems"][0]["message"]


def test_what_is_no_json_is_refused(server: StudioServer) -> None:
    assert asked(server.guard, f"{server.guard.prefix}/call/open", "POST", "{" * 3).status == 400
    assert asked(server.guard, f"{server.guard.prefix}/call/open", "POST", "[" * 100_000).status == 400


def test_a_request_that_is_too_long_is_refused(server: StudioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openinfer.studio.server._LARGEST", 1000)
    assert asked(server.guard, f"{server.guard.prefix}/call/check", "POST", " " * 2000).status == 413
