"""The playground's door: prompts and post-processing for a page's text, logins by cookie, and nothing for strangers."""

import asyncio
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from backend.world import TOKENIZER, gateway, profile
from e2e.lsp_support import GatewayProcess
from foretype_backend.identity.logins import BrowserLogins, cookie_name
from foretype_backend.playground.plans import Pages
from foretype_context.prompt.assemble import Assembler
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

TOKEN = "sesame-open-up-please"
PAGE = "page-0001"


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


@pytest.mark.parametrize("shared", [False, True])
def test_a_login_ends_by_itself_and_belongs_to_one_port_and_one_page(tmp_path: Path, shared: bool) -> None:
    now = 0.0
    folder = tmp_path if shared else None
    logins = BrowserLogins(folder, lambda: now)
    cookie, page = logins.open(TOKEN)
    assert TOKEN not in cookie + page
    name = cookie_name("localhost:7878", secure=False)
    headers = {"host": "localhost:7878", "cookie": f"a=b; {name}={cookie}", "x-foretype-page": page}
    assert logins.token(headers) == TOKEN
    assert logins.token({**headers, "host": "localhost:9"}) is None
    without = {name: value for name, value in headers.items() if name != "x-foretype-page"}
    assert logins.token(without) is None  # what a service on another port gets to see
    assert logins.token({**headers, "x-foretype-page": logins.open(TOKEN).page}) is None
    assert logins.token({**without, "sec-websocket-protocol": f"foretype, foretype.{page}"}) == TOKEN
    assert logins.token({**headers, "cookie": "foretype_7878=guess"}) is None
    assert logins.token({**headers, "cookie": "\x00;=;;"}) is None
    assert logins.token({**headers, "cookie": f"__Host-{name}={cookie}"}) == TOKEN  # what TLS gives
    now = 9 * 3600.0
    assert logins.token(headers) is None


@pytest.mark.parametrize("shared", [False, True])
def test_a_code_works_once_and_for_a_minute(tmp_path: Path, shared: bool) -> None:
    now = 0.0
    folder = tmp_path if shared else None
    logins, others = BrowserLogins(folder, lambda: now), BrowserLogins(folder, lambda: now)
    redeemed = others if shared else logins  # another worker
    code, late = logins.code(TOKEN), logins.code(TOKEN)
    assert TOKEN not in code
    assert redeemed.redeem(code) == TOKEN
    assert logins.redeem(code) is redeemed.redeem(code) is None
    now = 61.0
    assert redeemed.redeem(late) is None
    assert logins.redeem("guess") is logins.redeem("../x") is None
    headers = {"host": "localhost:7878", "cookie": f"foretype_7878={logins.code(TOKEN)}", "x-foretype-page": ""}
    assert logins.token(headers) is None


@pytest.mark.slow
def test_who_reads_what_workers_share_has_no_token_and_too_many_logins_forget_the_oldest(tmp_path: Path) -> None:
    logins = BrowserLogins(tmp_path)
    first = logins.open(TOKEN)
    kept = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert kept and all(TOKEN.encode() not in file.read_bytes() for file in kept)
    assert all(first.cookie not in file.name and file.stat().st_mode & 0o077 == 0 for file in kept)
    assert (tmp_path / "logins").stat().st_mode & 0o077 == 0
    for _ in range(1001):
        logins.code(TOKEN)
    assert len(list((tmp_path / "logins").iterdir())) == 1000
    headers = {"host": "h:1", "cookie": f"foretype_1={first.cookie}", "x-foretype-page": first.page}
    assert logins.token(headers) is None


async def test_the_prompt_is_what_the_stream_takes() -> None:
    async with gateway() as world, world.http() as client:
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
        assert stale.status_code == 200  # a browser would put anything else into its console
        assert stale.json() == {"text": "", "replaces": 0, "reason": "superseded"}


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
    async with gateway() as world, world.http() as client:
        answer = await client.post("/playground/plan", json=body)
        assert answer.status_code == 400
        assert field in str(answer.json()["error"])


async def test_strangers_see_the_page_and_nothing_else() -> None:
    async with gateway(token=TOKEN) as world, world.http() as client:
        page = await client.get("/playground")
        assert page.status_code == 200 and "script-src 'self'" in page.headers["content-security-policy"]
        assert (await client.get("/playground/app.js")).status_code == 200
        question = {"page": PAGE, "before": "x"}
        assert (await client.post("/playground/plan", json=question)).status_code == 401
        assert (await client.post("/playground/login", json={"token": "wrong"})).status_code == 401
        entered = await client.post("/playground/login", json={"token": TOKEN})
        assert entered.status_code == 200 and "HttpOnly" in entered.headers["set-cookie"]
        assert (
            await client.post("/playground/plan", json=question)
        ).status_code == 401  # the cookie alone opens nothing
        client.headers["x-foretype-page"] = entered.json()["page"]
        assert (await client.post("/playground/plan", json=question)).status_code == 200
        elsewhere = {"Origin": "http://localhost:3000"}
        assert (await client.post("/playground/plan", json=question, headers=elsewhere)).status_code == 403
        assert (await client.get("/playground/../app.py")).status_code == 404


async def test_a_code_opens_one_page_and_no_token_is_in_what_browsers_keep() -> None:
    async with gateway(token=TOKEN) as world, world.http() as client:
        assert (await client.post("/playground/code")).status_code == 401
        wrong = await client.post("/playground/code", headers={"Authorization": "Bearer wrong"})
        assert wrong.status_code == 401
        made = await client.post("/playground/code", headers={"Authorization": f"Bearer {TOKEN}"})
        assert made.json()["seconds"] == 60.0 and TOKEN not in made.text
        code = made.json()["code"]
        entered = await client.post("/playground/login", json={"code": code}, headers={"Origin": world.url})
        assert entered.status_code == 200 and TOKEN not in entered.text + str(entered.headers)
        assert "Secure" not in entered.headers["set-cookie"]
        again = await client.post("/playground/login", json={"code": code})
        assert again.status_code == 401 and "used" in again.json()["error"]["message"]
        page = {"x-foretype-page": entered.json()["page"]}
        question = {"page": PAGE, "before": "x"}
        assert (await client.post("/playground/plan", json=question, headers=page)).status_code == 200


async def test_behind_tls_the_cookie_is_the_hosts_alone() -> None:
    async with gateway(token=TOKEN) as world, world.http() as client:
        origin = {"Origin": f"https://127.0.0.1:{world.port}"}  # TLS ends at a proxy
        entered = await client.post("/playground/login", json={"token": TOKEN}, headers=origin)
        cookie = entered.headers["set-cookie"]
        assert cookie.startswith(f"__Host-foretype_{world.port}=") and "Secure" in cookie and "Path=/" in cookie


async def test_a_browsers_socket_takes_both_halves_and_the_answer_names_the_protocol() -> None:
    async with gateway(token=TOKEN) as world, world.http() as client:
        page = (await client.post("/playground/login", json={"token": TOKEN})).json()["page"]
        cookie = "; ".join(f"{one.name}={one.value}" for one in client.cookies.jar)
        url = f"ws://127.0.0.1:{world.port}/v1/stream"
        protocols = [Subprotocol("foretype"), Subprotocol(f"foretype.{page}")]
        async with connect(
            url, additional_headers={"Cookie": cookie}, subprotocols=protocols, open_timeout=60
        ) as socket:
            assert socket.subprotocol == "foretype"
            await socket.send('{"type": "hello", "v": 1, "client": "test"}')
            assert '"profile"' in str(await socket.recv())
        async with connect(url, additional_headers={"Cookie": cookie}, open_timeout=60) as socket:
            await socket.wait_closed()
            assert socket.close_code == 4401


LONG = "l" * 3_000 + "ong"


@pytest.mark.slow
@pytest.mark.parametrize("token", [TOKEN, LONG])
@pytest.mark.timeout(120)
async def test_a_login_holds_at_every_worker_and_a_code_works_once_among_them(tmp_path: Path, token: str) -> None:
    """Each request over a connection of its own, so that the system hands it to any of them."""
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    options = ("--workers", "2", "--token-file", tmp_path / "token")
    with closing(GatewayProcess(tmp_path, options=options)) as served:
        base = f"http://127.0.0.1:{served.port}"
        question = {"page": PAGE, "before": "x"}

        def post(path: str, body: object = None, headers: dict[str, str] | None = None) -> httpx.Response:
            return httpx.post(f"{base}/playground/{path}", json=body, headers=headers, trust_env=False, timeout=60)

        for _ in range(5):
            code = post("code", headers={"Authorization": f"Bearer {token}"}).json()["code"]
            entered = await asyncio.gather(*(asyncio.to_thread(post, "login", {"code": code}) for _ in range(8)))
            assert sorted(one.status_code for one in entered) == [200] + 7 * [401]
            login = next(one for one in entered if one.status_code == 200)
            name = cookie_name(f"127.0.0.1:{served.port}", secure=False)
            headers = {"Cookie": f"{name}={login.cookies[name]}", "x-foretype-page": login.json()["page"]}
            asked = await asyncio.gather(*(asyncio.to_thread(post, "plan", question, headers) for _ in range(12)))
            assert {one.status_code for one in asked} == {200}


async def test_the_bundle_is_small_and_asks_nobody_else() -> None:
    async with gateway() as world, world.http() as client:
        parts = [(await client.get(f"/playground{part}")).text for part in ("", "/app.js", "/style.css")]
        assert sum(map(len, parts)) <= 1_000_000
        assert not any(
            mark in part for part in parts for mark in ('src="http', "@import", 'href="http', "sourceMappingURL")
        )
