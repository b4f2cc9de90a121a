"""Helix in a terminal: it draws no suggestions, so they are in its completion menu, and next edits among its code actions."""

import sys
from contextlib import closing, contextmanager

import pytest
from e2e.editors.terminal_support import Terminal, environment, find, version_of
from e2e.lsp_support import SOURCE, gateway

HELIX = find("helix", "FORETYPE_HELIX")
pytestmark = [
    pytest.mark.skipif(
        HELIX is None or not version_of(HELIX), reason="needs Helix: editors/install-helix.sh (or FORETYPE_HELIX)"
    ),
    pytest.mark.timeout(180),
]

LANGUAGES = """
[language-server.foretype]
command = "{python}"
args = ["-m", "foretype_lsp", "--popup", "--gateway", "{url}", "--log-file", "{log}", "--log-level", "info"]

[[language]]
name = "python"
language-servers = ["foretype"]
"""


AREA = "def area(width, height):\n    if width < 0:\n        return 0\n    return width * height\n"
MODULE = "def area(w, h):\n    return w * h\n\n\nprint(area(1, 2))\n"
USER = "from mod import area\n\nprint(area(3, 4))\n"


@pytest.fixture
def helix(tmp_path):
    with opened(tmp_path, {"a.py": SOURCE}) as (terminal, folder):
        yield terminal, folder / "a.py"


@contextmanager
def opened(tmp_path, texts):
    """Helix with these files, the first of them on the screen, once the server is ready."""
    env = environment(tmp_path)
    settings = tmp_path / "home/.config/helix"
    settings.mkdir(parents=True)
    folder = tmp_path / "work"
    (folder / ".git").mkdir(parents=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    with gateway(tmp_path) as served:
        log = tmp_path / "lsp.log"
        (settings / "languages.toml").write_text(LANGUAGES.format(python=sys.executable, url=served.url, log=log))
        with closing(Terminal(tmp_path, HELIX, *(folder / name for name in texts), cwd=folder, env=env)) as terminal:
            terminal.until(lambda _: log.exists() and "status: ready" in log.read_text())
            yield terminal, folder


def at(terminal, line, column):
    """Wait until the status line says that the cursor is there."""
    terminal.until(lambda screen: any(one.rstrip().endswith(f" {line}:{column}") for one in screen.splitlines()))


def retype(terminal, new):
    """Change what is selected."""
    terminal.type("c")
    terminal.until(" INS ")
    terminal.type(new)
    terminal.until(new)
    terminal.press("Escape")
    terminal.until(" NOR ")


def rename(terminal, old, new, declared, used):
    """Where it stands first, and by hand at its first use; each (line, column) of the name's end."""
    terminal.type(f"/{old}")
    terminal.press("Enter")
    at(terminal, *declared)
    retype(terminal, new)
    terminal.type("n")
    at(terminal, *used)
    retype(terminal, new)


def take(terminal, title):
    """Ask for the code actions and choose the first; a busy server may answer once without it, to keep nobody waiting."""
    while True:
        terminal.type(" a")
        if title in terminal.until("Foretype: explain"):
            break
        terminal.press("Escape")
        terminal.until(lambda screen: "Foretype: explain" not in screen)
    terminal.press("Enter")


def save(terminal, file, text):
    terminal.type(":w")
    terminal.press("Enter")
    # Helix moves the old file away and then writes the new one: in between there is none.
    terminal.until(lambda _: file.exists() and file.read_text() == text)


def test_the_suggestion_is_in_the_menu_and_enter_puts_it_into_the_file(helix):
    terminal, file = helix
    terminal.type("ge")
    terminal.type("o")
    terminal.type("value = val", pause_s=0.05)
    screen = terminal.until("value = val  # scripted")
    assert "text" in screen
    terminal.press("Tab", "Enter", "Escape", "Escape")  # the menu of what comes after it, and the insertion
    save(terminal, file, SOURCE + "    value = value = val  # scripted\n")


def test_a_rename_is_followed_by_code_actions_and_one_undo_takes_the_edit_back(tmp_path):
    with opened(tmp_path, {"a.py": AREA}) as (terminal, folder):
        rename(terminal, "width", "size", (1, 14), (2, 12))
        take(terminal, "Next edit: line 4, `width` → `size`")
        at(terminal, 4, 12)
        save(terminal, folder / "a.py", AREA.replace("width", "size"))
        terminal.type("u")
        terminal.until("return width * height")
        save(terminal, folder / "a.py", AREA.replace("width", "size", 2))


def test_what_chat_cannot_do_is_said_on_the_screen(tmp_path):
    with opened(tmp_path, {"a.py": AREA}) as (terminal, _):
        take(terminal, "Foretype: document")
        terminal.until("Foretype: this gateway answers no chat")


def test_the_next_edit_of_another_file_is_gone_to_and_taken_there(tmp_path):
    with opened(tmp_path, {"mod.py": MODULE, "use.py": USER}) as (terminal, folder):
        rename(terminal, "area", "surface", (1, 8), (5, 10))
        take(terminal, "Next edit: use.py, line 1")
        at(terminal, 1, 17)
        take(terminal, "Next edit: line 1, `area` → `surface`")
        terminal.until("from mod import surface")
        take(terminal, "Next edit: line 3, `area` → `surface`")
        terminal.until("print(surface(3, 4))")
        save(terminal, folder / "use.py", USER.replace("area", "surface"))
        assert (folder / "mod.py").read_text() == MODULE
