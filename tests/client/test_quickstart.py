"""What `make run` shows in the end."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest
from e2e.processes import who_was_given
from foretype_client.commands import quickstart
from foretype_client.commands.quickstart import editor_lines


def lines_of(command: str, editors: Path) -> dict[str, str]:
    return {editor.partition(" (")[0]: lines for editor, lines in editor_lines(command, editors)}


def test_a_checkout_offers_its_own_editor_plugins(tmp_path: Path) -> None:
    (tmp_path / "nvim").mkdir()
    lines = lines_of("/x/foretype", tmp_path)
    assert list(lines) == ["Neovim", "VS Code", "Emacs", "Helix"]
    assert str(tmp_path / "emacs") in lines["Emacs"] and '("/x/foretype" "lsp")' in lines["Emacs"]
    assert str(tmp_path / "nvim") in lines["Neovim"] and "/x/foretype" in lines["Neovim"]
    assert str(tmp_path / "vscode") in lines["VS Code"]
    assert tomllib.loads(lines["Helix"])["language-server"]["foretype"]["command"] == "/x/foretype"


def test_an_installed_package_offers_what_needs_no_checkout(tmp_path: Path) -> None:
    lines = lines_of("foretype", tmp_path)
    assert "vim.lsp.inline_completion.enable()" in lines["Neovim 0.12"]
    assert lines["VS Code and Vim"] == "foretype serve --port 8012"


def test_a_line_that_is_pasted_is_short_enough_for_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "nvim").mkdir()
    for editors in (tmp_path, tmp_path / "none"):
        for _, lines in editor_lines("foretype", editors):
            assert max(len(line.replace(str(tmp_path), "")) for line in lines.splitlines()) <= 80


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(180)
def test_it_shows_suggestions_and_prints_a_line_per_editor(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("foretype")),
        "quickstart",
        "--keys",
        "12",
        "--state-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    for expected in (
        "suggestions shown",
        "Attach an editor",
        "Neovim",
        "VS Code",
        "Helix",
        "only when you ask",
        "`foretype use` proposes a good model",
        "ends by itself",
        "/playground#code=",
        "once, for a minute",
    ):
        assert expected in " ".join(done.stdout.split())
    record = json.loads((tmp_path / "gateway.json").read_text())  # it waits for a minute for somebody to come
    assert record["token"] not in done.stdout
    assert who_was_given(record["token"]) == []
    psutil.Process(record["pid"]).terminate()


@pytest.mark.parametrize(("answer", "asked", "looked"), [(True, 1, 1), (False, 1, 0)])
def test_a_model_is_offered_where_none_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, asked: int, looked: int
) -> None:
    questions: list[str] = []
    commands: list[list[str]] = []

    def confirm(question: str, default: bool) -> bool:
        questions.append(question)
        return answer

    def app(arguments: list[str], standalone_mode: bool) -> None:
        commands.append(arguments)
        raise SystemExit(1)  # whatever comes of it, the demo follows

    monkeypatch.setattr("typer.confirm", confirm)
    monkeypatch.setattr("foretype_client.commands.cli.app", app)
    quickstart._offer_model(tmp_path)
    assert (len(questions), len(commands)) == (asked, looked)
    assert commands == [["use", "--state-dir", str(tmp_path)]] * looked
    (tmp_path / "private.toml").write_text("")
    quickstart._offer_model(tmp_path)
    assert len(questions) == asked
