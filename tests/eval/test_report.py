"""The report: one page that needs nothing else, the right figures first, a denominator beside every acceptance."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from eval.replay_rows import commit_row
from foretype_eval.cli import app
from foretype_eval.compare.runs import Run
from foretype_eval.report.figures import Prices, run_figures
from typer.testing import CliRunner

pytest.importorskip("matplotlib", reason="plots need matplotlib (pip install 'foretype[report]')")

ROWS = [
    commit_row(
        n,
        system="<model>",
        keys_without=100,
        keys_with=90,
        opportunities=95,
        sessions=20,
        sessions_right=5,
        accepts=4,
        accepted_chars=40,
        requests=50,
        answered=45,
        late=9,
        prompt_tokens=1000,
        cached_tokens=900,
        generated_tokens=300,
        slices={"language:python": [20, 5, 40], "position:line start": [20, 5, 40], "length:up to 10": [20, 5, 40]},
        stages_ms={"ttft": [5.0, 9.0, 20.0], "total": [9.0, 30.0, 50.0]},
    )
    for n in range(4)
] + [commit_row(n, system="empty", keys_without=100, keys_with=100) for n in range(4)]


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_figures_name_their_denominators_and_costs() -> None:
    run = Run(name="r", replay={(r.system, r.commit): r for r in ROWS})
    prices = Prices(hour=3600.0, prefill_tokens_per_s=100.0, decode_tokens_per_s=10.0)
    found = run_figures(run, prices=prices)["systems"]["<model>"]
    assert found["acceptance"]["rate"] == 0.25 and found["acceptance"]["denominator"] == 80
    assert found["slices"]["language"]["python"]["accepted_chars"] == 160
    assert found["cost"]["price"] == pytest.approx(400 / 100 + 1200 / 10)
    assert found["cost"]["per_completion"] == pytest.approx(124 / 200)
    assert found["cost"]["per_accepted_token"] == pytest.approx(124 / 40)
    assert found["stages_ms"]["ttft"]["n"] == 12 and found["stages_ms"]["ttft"]["p50"] == 9.0


def test_the_page_needs_nothing_else_and_shows_usefulness_first(tmp_path: Path) -> None:
    items, out = tmp_path / "items.jsonl", tmp_path / "page.html"
    items.write_bytes(b"\n".join(map(msgspec.json.encode, ROWS)))
    arguments = ["report", str(items), "--out", str(out), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads(out.with_suffix(".json").read_text())
    text = out.read_text()
    page = Page()
    page.feed(text)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    sources = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href")
    ]
    assert all(value is not None and value.startswith("#") for value in sources)
    assert "@import" not in text and not re.search(r"url\((?!['\"]?#)", text)
    order = [
        text.index(words) for words in ("Keystrokes saved", "Accepted characters per opportunity", "right, of sessions")
    ]
    assert order == sorted(order)
    assert "25.0% of 80" in text
    assert "<model>" not in text and "&lt;model&gt;" in text
    assert (text.count("<svg") == 4 and "hatch" in text) or "<pattern" in text
    first = text
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert out.read_text() == first, "equal input, equal bytes"


def test_retention_is_not_guessed() -> None:
    run = Run(name="r", replay={(r.system, r.commit): r for r in ROWS})
    assert run_figures(run)["systems"]["empty"]["retained_per_opportunity"] is None


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["report"]).exit_code == 2
    assert CliRunner().invoke(app, ["report", str(tmp_path)]).exit_code == 2


def test_a_matplotlibrc_of_the_working_directory_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 99\n")
    code = "from foretype_eval.report.plots import _pyplot; p = _pyplot().rcParams; print(p['text.usetex'], p['font.size'])"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False 10.0\n"
