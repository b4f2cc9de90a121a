"""What is pasted comes back as it was: read by a shell, Emacs, Neovim's Lua and a TOML parser, not by patterns."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from foretype_context.text import pasted
from hypothesis import example, given
from hypothesis import strategies as st
from pasting import AWKWARD

TEXTS = [
    "/home/ann/clone",
    f"/home/ann/{AWKWARD}",
    "C:\\Users\\Ann B\\n.exe",
    "$(touch gone) `touch gone` ; & | > < * ? [a] {b,c} !! ~ #",
    "two\nlines\tand a tab",
    "größer ✓",
    "--option",
    "]] ]=] %d \\",
]
# A file's name holds no NUL, and what no terminal shows is replaced before it is printed.
PATHS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


def test_a_shell_reads_each_word_as_it_was() -> None:
    line = f"printf '%s\\0' {pasted.shell_line('', *TEXTS)}"
    for shell in filter(None, map(shutil.which, ("sh", "bash", "zsh"))):
        read = subprocess.run([shell, "-c", line], capture_output=True, text=True, check=True).stdout
        assert read.split("\0")[:-1] == ["", *TEXTS], shell


def test_a_word_that_needs_no_quotes_has_none() -> None:
    assert pasted.shell_line("make", "-C", Path("/home/ann/clone"), "vsix") == "make -C /home/ann/clone vsix"


def test_windows_has_quotation_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    line = pasted.shell_line("C:\\Users\\Ann Bell\\foretype.exe", "serve", "--port", "8012", "")
    assert line == '"C:\\Users\\Ann Bell\\foretype.exe" serve --port 8012 ""'


@given(PATHS)
@example("\x7f")
def test_toml_reads_it_as_it_was(text: str) -> None:
    assert tomllib.loads(f"text = {pasted.toml_string(text)}") == {"text": text}


@pytest.mark.skipif(shutil.which("emacs") is None, reason="Emacs is not installed")
def test_emacs_reads_each_text_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "texts.el"
    file.write_text("".join(f'(princ {pasted.elisp_string(text)}) (princ "\\0")\n' for text in TEXTS), "utf-8")
    done = subprocess.run(["emacs", "-Q", "--batch", "-l", file], capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == TEXTS


@pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")
def test_neovim_s_lua_reads_each_text_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "texts.lua"
    file.write_text("".join(f"io.stdout:write({pasted.lua_string(text)}, '\\0')\n" for text in TEXTS), "utf-8")
    command = ["nvim", "--headless", "--clean", "-c", "luafile texts.lua", "-c", "qall"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split("\0")[:-1] == TEXTS
