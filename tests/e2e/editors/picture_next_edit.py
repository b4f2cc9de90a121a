"""Make the pictures of docs/editors.md: a next edit of our own server in Neovim and in Emacs, its hint and then its drawing.

python tests/e2e/editors/picture_next_edit.py docs        next-edit-neovim.png and next-edit-emacs.png; Chromium draws them
"""

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from e2e.editors.next_edit_support import InEmacs, InNeovim
from e2e.lsp_support import gateway, server_command
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

SOURCE = '''def volume(width, height, depth):
    """Of a box, in cubic metres.

    Args:
        height, depth: metres, as every side.
    """
    return width * height * depth


print(volume(1, 2, 3))
'''
LINES, COLUMNS = 8, 76
PAGE = '<html><body style="margin:0;padding:14px 14px 0;background:#0c0c0c">{}</body></html>'
PANEL = '<pre style="font:15px/20px DejaVu Sans Mono,monospace;margin:0 0 14px;color:{foreground}">{code}</pre>'
SIZE = "740,362"
CONFIGS = {
    InNeovim: "vim.opt.termguicolors = true vim.opt.background = 'dark'\n",
    InEmacs: "(menu-bar-mode -1) (setq lsp-headerline-breadcrumb-enable nil)\n",
}


def panel(screen):
    """Some lines of a terminal, as tmux gives them with their colours."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi("\n".join(screen.splitlines()[:LINES])), no_wrap=True, crop=True)
    return console.export_html(theme=MONOKAI, inline_styles=True, code_format=PANEL)


def panels(kind, folder, url):
    """The hint, and the drawing after Tab."""
    with kind(folder, SOURCE, server_command("--gateway", url), config=CONFIGS[kind]) as editor:
        editor.command("eagerness", "medium")
        editor.renamed("breadth", 0, 11)
        hint = editor.it.screen(colours=True)
        editor.press("Tab")
        editor.until(lambda: editor.seen() and editor.seen().text)
        return panel(hint) + panel(editor.it.screen(colours=True))


def main():
    for name, kind in (("neovim", InNeovim), ("emacs", InEmacs)):
        with tempfile.TemporaryDirectory() as folder, gateway(Path(folder)) as running:
            page = Path(folder) / "page.html"
            page.write_text(PAGE.format(panels(kind, Path(folder), running.url)))
            picture = Path(sys.argv[1]).resolve() / f"next-edit-{name}.png"
            options = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SIZE}")
            subprocess.run([shutil.which("chromium"), *options, f"--screenshot={picture}", page.as_uri()], check=True)


if __name__ == "__main__":
    main()
