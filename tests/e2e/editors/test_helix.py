"""Helix in a terminal: it has no inline completion, so the suggestion is an item of its completion menu."""

import sys

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


@pytest.fixture
def helix(tmp_path):
    env = environment(tmp_path)
    settings = tmp_path / "home/.config/helix"
    settings.mkdir(parents=True)
    file = tmp_path / "work" / "a.py"
    (file.parent / ".git").mkdir(parents=True)
    file.write_text(SOURCE)
    with gateway(tmp_path) as served:
        log = tmp_path / "lsp.log"
        (settings / "languages.toml").write_text(LANGUAGES.format(python=sys.executable, url=served.url, log=log))
        terminal = Terminal(tmp_path, HELIX, file, cwd=file.parent, env=env)
        try:
            terminal.until(lambda _: log.exists() and "status: ready" in log.read_text())
            yield terminal, file
        finally:
            terminal.close()


def test_the_suggestion_is_in_the_menu_and_enter_puts_it_into_the_file(helix):
    terminal, file = helix
    terminal.type("ge")
    terminal.type("o")
    terminal.type("value = val", pause_s=0.05)
    screen = terminal.until("value = val  # scripted")
    assert "text" in screen
    terminal.press("Tab", "Enter", "Escape")
    terminal.type(":w")
    terminal.press("Enter")
    terminal.until(lambda _: "scripted" in file.read_text())
    assert file.read_text() == SOURCE + "    value = valvalue = val  # scripted\n"
