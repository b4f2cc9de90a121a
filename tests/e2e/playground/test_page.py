"""The playground in a real browser: a suggestion at once, by keyboard alone, nothing moves, nothing that axe objects to."""

import itertools
import json
import os
from pathlib import Path

import httpx
import pytest
from e2e.lsp_support import gateway
from e2e.playground.page_support import MISSING

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

TOKEN = "let-me-in-please"


GHOST = "(document.querySelector('.ghost')?.textContent ?? '')"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), decode_s=0.002) as running:
        yield f"http://127.0.0.1:{running.port}/playground"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_suggestion_is_there_once_the_page_is_opened(page, served, scheme, tmp_path):
    page.do("open", url=served, scheme=scheme)
    taken_ms = page.do("shown", selector=".ghost")
    assert taken_ms is not None
    print(f"a suggestion after {taken_ms:.0f} ms")
    page.until("document.getElementById('summary').textContent.includes('computed')")
    folder = Path(os.environ.get("FORETYPE_SCREENSHOTS") or tmp_path)
    page.do("screenshot", path=str(folder / f"playground-{scheme}.png"))
    checked = page.do("axe")
    assert checked["violations"] == [] and checked["passes"] > 10
    assert page.evaluate("window.movers") == []
    assert page.do("complaints") == []


def test_tab_accepts_a_word_key_accepts_a_word_and_escape_dismisses(page, served):
    page.do("open", url=served)
    page.do("shown", selector=".ghost")
    page.until("document.getElementById('said').textContent.startsWith('Suggestion: ')")
    before, ghost = page.text(), page.evaluate(GHOST)
    page.press("Control+ArrowRight")
    page.until("document.querySelector('.ghost')?.textContent.length > 0")
    left = page.evaluate(GHOST)
    assert ghost.endswith(left) and left != ghost
    page.press("Tab")
    page.until(f"{GHOST} !== {json.dumps(left)}")
    line = next(i for i, text in enumerate(before.split("\n")) if text.endswith("return ["))
    assert page.text().split("\n")[line] == before.split("\n")[line] + ghost
    page.press("Enter")
    page.do("type", text="total = ", delay=20)
    page.until("document.querySelector('.ghost')?.textContent.length > 0")
    page.press("Escape")
    assert page.evaluate(GHOST) == ""


def test_without_a_suggestion_tab_leaves_the_editor(page, served):
    page.do("open", url=served)
    page.do("shown", selector=".ghost")
    page.press("Escape", "Tab")
    assert page.evaluate("document.activeElement.closest('#editor')") is None


def test_nothing_moves_while_a_suggestion_of_several_lines_streams(page, tmp_path):
    with gateway(tmp_path, decode_s=0.03) as slow:
        page.do("open", url=f"http://127.0.0.1:{slow.port}/playground")
        page.do("shown", selector=".ghost")
        page.press("Escape", "Control+End")
        page.do("type", text="def g(b):\n", delay=20)
        lines = page.evaluate("document.querySelectorAll('.cm-line').length")
        page.do("shown", selector=".ghost-below")
        page.evaluate("window.movers = []")
        page.until("document.getElementById('said').textContent.includes('return')")
        assert page.evaluate("window.movers") == []
        assert page.evaluate("document.querySelectorAll('.cm-line').length") == lines


def test_typing_costs_the_typed_tokens_alone_and_the_panel_says_so(page, served):
    page.do("open", url=served)
    page.do("shown", selector=".ghost")
    page.until("document.getElementById('summary').textContent.includes('computed')")
    page.press("Escape")
    page.do("type", text="li", delay=30)
    page.until("/^this page: [2-9] requests/.test(document.getElementById('session').textContent)")
    states = "[...document.querySelectorAll('#segments td:nth-child(4)')].map((cell) => cell.textContent)"
    page.until(f"{states}.includes('cached')")
    ranges = page.evaluate(
        "[...document.querySelectorAll('#segments td:nth-child(2)')].map((cell) => cell.textContent)"
    )
    ends = [tuple(int(part.replace(",", "")) for part in text.split("–")) for text in ranges if "–" in text]
    assert ends[0][0] == 0 and all(a[1] == b[0] for a, b in itertools.pairwise(ends))


def test_a_gateway_with_a_token_asks_for_it_once_and_the_page_never_keeps_it(page, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with gateway(tmp_path, options=("--token-file", tmp_path / "token")) as running:
        url = f"http://127.0.0.1:{running.port}/playground"
        page.do("open", url=url)
        page.until("document.getElementById('login').hidden", False)
        page.do("type", text="wrong")
        page.press("Enter")
        page.until("document.getElementById('login-error').textContent.includes('not the token')")
        page.evaluate("document.getElementById('token').value = ''")
        page.do("type", text=TOKEN)
        page.press("Enter")
        assert page.do("shown", selector=".ghost") is not None
        (cookie,) = page.do("cookies")
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and TOKEN not in cookie["value"]
        kept = page.evaluate("document.cookie + JSON.stringify({...localStorage, ...sessionStorage})")
        assert TOKEN not in kept and cookie["value"] not in kept
        assert page.evaluate("document.getElementById('token').value") == ""
        page.do(
            "open", url=f"{url}#token={TOKEN}"
        )  # in a profile of its own: not logged in, and an address holds no token
        page.until("document.getElementById('login').hidden", False)


def test_an_address_with_a_code_opens_the_page_once(page, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    with gateway(tmp_path, options=("--token-file", tmp_path / "token")) as running:
        url = f"http://127.0.0.1:{running.port}/playground"
        made = httpx.post(f"{url}/code", headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
        address = f"{url}#code={made.json()['code']}"
        page.do("open", url=address)
        assert page.do("shown", selector=".ghost") is not None
        assert page.evaluate("location.href") == url
        assert page.evaluate("document.getElementById('login').hidden")
        page.do("open", url=address)
        page.until("document.getElementById('login').hidden", False)
        page.until("document.getElementById('login-error').textContent.includes('foretype playground')")
        assert page.evaluate("location.href") == url
