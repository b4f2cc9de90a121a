"""What `make run` shows in the end."""

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil
import pytest
from e2e.processes import who_was_given
from foretype_client.commands import quickstart
from foretype_client.commands.quickstart import editor_lines
from pasting import AWKWARD, STANDS_IN, pasted
from stand_in import SHOWN


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


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout where nobody expects one, with stand-ins that write down what reaches them."""
    folder = tmp_path / AWKWARD
    for name in ("nvim/lua/foretype", "emacs", "vscode"):
        (folder / "editors" / name).mkdir(parents=True)
    (folder / "Makefile").write_text("vsix:\n\t@pwd > editors/vscode/foretype.vsix\n")
    (folder / "foretype").write_text(STANDS_IN)
    (folder / "foretype").chmod(0o755)
    return folder


def test_a_shell_builds_and_installs_the_extension_of_an_awkward_folder(clone: Path, tmp_path: Path) -> None:
    lines = lines_of(str(clone / "foretype"), clone / "editors")["VS Code"]
    package = clone / "editors" / "vscode" / "foretype.vsix"
    assert pasted(lines, tmp_path, "code") == [["code", "--install-extension", str(package)]]
    assert package.read_text().strip() == str(clone)


def test_a_shell_starts_the_gateway_of_an_awkward_folder(clone: Path, tmp_path: Path) -> None:
    lines = lines_of(str(clone / "foretype"), tmp_path / "none")["VS Code and Vim"]
    assert pasted(lines, tmp_path) == [["foretype", "serve", "--port", "8012"]]


def test_helix_reads_the_command_of_an_awkward_folder(clone: Path) -> None:
    command = str(clone / "foretype")
    for editors in (clone / "editors", clone / "none"):
        read = tomllib.loads(lines_of(command, editors)["Helix"])
        assert read["language-server"]["foretype"]["command"] == command


@pytest.mark.skipif(shutil.which("emacs") is None, reason="Emacs is not installed")
def test_emacs_loads_the_plugin_of_an_awkward_folder(clone: Path, tmp_path: Path) -> None:
    plugin = (
        "(defvar foretype-command nil) (defun foretype-setup () (princ (car foretype-command))) (provide 'foretype)"
    )
    (clone / "editors" / "emacs" / "foretype.el").write_text(plugin)
    (tmp_path / "init.el").write_text(lines_of(str(clone / "foretype"), clone / "editors")["Emacs"], "utf-8")
    command = ["emacs", "-Q", "--batch", "-l", tmp_path / "init.el"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == str(clone / "foretype")


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_loads_the_plugin_of_an_awkward_folder(clone: Path, tmp_path: Path) -> None:
    says = "io.stdout:write(options.cmd[1], ' ', options.cmd[2])"
    (clone / "editors/nvim/lua/foretype/init.lua").write_text(f"return {{ setup = function(options) {says} end }}")
    assert neovim(lines_of(str(clone / "foretype"), clone / "editors")["Neovim"], tmp_path) == f"{clone}/foretype lsp"


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_configures_the_command_of_an_awkward_folder(clone: Path, tmp_path: Path) -> None:
    says = "function(name, options) io.stdout:write(name, ' ', options.cmd[1]) end"
    stands_in = f"vim.lsp.config, vim.lsp.enable = {says}, print; vim.lsp.inline_completion = {{ enable = print }}\n"
    lines = lines_of(str(clone / "foretype"), clone / "none")["Neovim 0.12"]
    assert neovim(stands_in + lines, tmp_path) == f"foretype {clone}/foretype"


def neovim(init: str, folder: Path) -> str:
    """What it writes to its standard output."""
    (folder / "init.lua").write_text(init, "utf-8")
    command = ["nvim", "--headless", "--clean", "-c", "luafile init.lua", "-c", "qall"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.timeout(180)
def test_it_shows_suggestions_and_prints_a_line_per_editor(tmp_path: Path) -> None:
    (tmp_path / "private.toml").write_text(SHOWN)
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
        "ends by itself",
        "/playground#code=",
        "once, for a minute",
    ):
        assert expected in " ".join(done.stdout.split())
    record = json.loads((tmp_path / "gateway.json").read_text())  # it waits for a minute for somebody to come
    assert record["token"] not in done.stdout
    assert who_was_given(record["token"]) == []
    psutil.Process(record["pid"]).terminate()


def test_the_model_is_fetched_where_none_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def app(arguments: list[str], standalone_mode: bool) -> None:
        commands.append(arguments)
        raise SystemExit(1)  # whatever comes of it, the demo follows

    monkeypatch.setattr("foretype_client.commands.cli.app", app)
    quickstart._fetch_network(tmp_path)
    assert commands == [["models", "fetch"]]
    (tmp_path / "private.toml").write_text("")
    quickstart._fetch_network(tmp_path)
    assert len(commands) == 1
