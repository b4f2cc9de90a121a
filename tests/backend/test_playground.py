"""The playground's door: prompts and post-processing for a page's text, logins by cookie, and nothing for strangers."""

from __future__ import annotations

import httpx
import pytest
from backend.world import TOKENIZER, gateway, profile
from foretype_backend.playground.logins import BrowserLogins, cookie_name
from foretype_backend.playground.plans import Pages, difference
from foretype_context.assemble import Assembler
from hypothesis import given
from hypothesis import strategies as st

TOKEN = "sesame-open-up-please"
PAGE = "page-0001"


@given(st.text(max_size=30), st.text(max_size=30))
def test_the_difference_makes_the_one_text_of_the_other(before: str, after: str) -> None:
    edit = difference(before, after)
    if edit is None:
        assert before == after
    else:
        assert before[: edit.start] + edit.text + before[edit.end :] == after


def test_a_page_is_forgotten_when_it_was_quiet_or_when_there_are_too_many() -> None:
    pages, assembler = Pages(), Assembler(TOKENIZER, profile())

    def ask(name: str, now: float) -> None:
        pages.plan(assembler, name, "x = ", "", path="a.py", language="python", now=now)

    for number in range(100):
        ask(f"p{number}", 0.0)
    assert len(pages) == 64
    ask("p99", 601.0)
    assert len(pages) == 1


def test_what_was_generated_for_an_older_text_is_not_finished() -> None:
    pages, assembler = Pages(), Assembler(TOKENIZER, profile())
    _, first = pages.plan(assembler, "a", "x = ", "", path="a.py", language="python", now=0.0)
    finished = pages.finish("a", first, "1 + 2", final=True)
    assert finished is not None and finished.text == "1 + 2"
    _, second = pages.plan(assembler, "a", "x = 1", "", path="a.py", language="python", now=0.0)
    assert second == first + 1
    assert pages.finish("a", first, "1 + 2", final=True) is None
    assert pages.finish("b", 1, "1", final=True) is None


def test_a_login_ends_by_itself_and_belongs_to_one_port() -> None:
    now = 0.0
    logins = BrowserLogins(lambda: now)
    value = logins.open(TOKEN)
    assert TOKEN not in value
    headers = {"host": "localhost:7878", "cookie": f"a=b; {cookie_name('localhost:7878')}={value}"}
    assert logins.token(headers) == TOKEN
    assert logins.token({**headers, "host": "localhost:9"}) is None
    assert logins.token({"host": "localhost:7878", "cookie": "foretype_7878=guess"}) is None
    assert logins.token({"host": "localhost:7878", "cookie": "\x00;=;;"}) is None
    now = 13 * 3600.0
    assert logins.token(headers) is None


async def test_the_prompt_is_what_the_stream_takes() -> None:
    async with gateway() as world, httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as client:
        answer = await client.post(
            "/playground/plan", json={"page": PAGE, "before": "def f():\n    ret", "after": "\n"}
        )
        plan = answer.json()
        assert answer.status_code == 200
        assert plan["ranges"][-1][1] == plan["complete"]["prompt_tokens"]
        async with world.peer() as peer:
            await peer.still_works()
        version = plan["complete"]["version"]
        done = await client.post("/playground/finish", json={"page": PAGE, "version": version, "text": "urn 1  "})
        assert done.json()["text"] == "urn 1"
        stale = await client.post("/playground/finish", json={"page": PAGE, "version": version + 1, "text": "x"})
        assert stale.status_code == 409


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"before": "x"}, "page"),
        ({"page": "short", "before": "x"}, "page"),
        ({"page": PAGE, "before": 5}, "before"),
        ({"page": PAGE, "before": "x" * 100_001}, "before"),
        ({"page": PAGE, "before": "x" * 900_000}, "body"),
        ([], ""),
    ],
)
async def test_a_bad_question_is_answered_with_its_field(body: object, field: str) -> None:
    async with gateway() as world, httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as client:
        answer = await client.post("/playground/plan", json=body)
        assert answer.status_code == 400
        assert field in str(answer.json()["error"])


async def test_strangers_see_the_page_and_nothing_else() -> None:
    async with gateway(token=TOKEN) as world, httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as client:
        page = await client.get("/playground")
        assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
        assert (await client.get("/playground/app.js")).status_code == 200
        question = {"page": PAGE, "before": "x"}
        assert (await client.post("/playground/plan", json=question)).status_code == 401
        assert (await client.post("/playground/login", json={"token": "wrong"})).status_code == 401
        entered = await client.post("/playground/login", json={"token": TOKEN})
        assert entered.status_code == 204 and "HttpOnly" in entered.headers["set-cookie"]
        assert (await client.post("/playground/plan", json=question)).status_code == 200
        elsewhere = {"Origin": "http://localhost:3000"}
        assert (await client.post("/playground/plan", json=question, headers=elsewhere)).status_code == 403
        assert (await client.get("/playground/../app.py")).status_code == 404


async def test_the_bundle_is_small_and_asks_nobody_else() -> None:
    async with gateway() as world, httpx.AsyncClient(base_url=f"http://127.0.0.1:{world.port}") as client:
        parts = [(await client.get(f"/playground{part}")).text for part in ("", "/app.js", "/style.css")]
        assert sum(map(len, parts)) <= 1_000_000
        assert not any(
            mark in part for part in parts for mark in ('src="http', "@import", 'href="http', "sourceMappingURL")
        )
