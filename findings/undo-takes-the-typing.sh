#!/bin/sh
# JupyterLab: one undo takes back an inline suggestion together with what was typed before it.
set -eu
command -v chromium > /dev/null || { echo "needs chromium: nothing was asked"; exit 0; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install jupyterlab==4.6.6 playwright==1.65.2
cat > "$folder/ask.py" <<'PY'
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from importlib.metadata import version
from pathlib import Path
from playwright.sync_api import sync_playwright

print(f"JupyterLab {version('jupyterlab')}: Ctrl+Z after an inline suggestion was accepted takes away the typed beginning too, where no half second lay between;")
print("most would expect an accept to be a step of its own, as in VS Code: who does not want the suggestion loses the word that was typed.")
folder = Path(sys.argv[1])
home = {name: str(folder / name.lower()) for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
settings = folder / "jupyter_config_dir/labconfig/default_setting_overrides.json"
settings.parent.mkdir(parents=True)
settings.write_text(json.dumps({
    "@jupyterlab/completer-extension:inline-completer": {"providers": {"it": {"enabled": True, "timeout": 5000, "debouncerDelay": 0}}},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}))
(folder / "work").mkdir()
cell = {"cell_type": "code", "id": "a", "metadata": {}, "source": "", "outputs": [], "execution_count": None}
(folder / "work/n.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {"kernelspec": {"name": "python3", "display_name": "Python"}}, "nbformat": 4, "nbformat_minor": 5}))
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
options = ["--no-browser", "--allow-root", "--expose-app-in-browser", "--IdentityProvider.token=x", f"--ServerApp.port={port}", f"--ServerApp.root_dir={folder}/work"]
server = subprocess.Popen([sys.executable, "-m", "jupyterlab", *options], env=os.environ | home, stderr=subprocess.DEVNULL)
REGISTER = """async () => {
  await window.jupyterapp.restored;
  const services = window.jupyterapp.pluginRegistry._services;
  const token = [...services.keys()].find(({ name }) => name === '@jupyterlab/completer:ICompletionProviderManager');
  const manager = await window.jupyterapp.resolveRequiredService(token);
  window.seen = [];
  manager.registerInlineProvider({ identifier: 'it', name: 'it', schema: {}, %s });
}"""
GHOST = "() => document.querySelector('.jp-GhostText:not(.jp-GhostText-lineSpacer):not(.jp-GhostText-letterSpacer)')?.innerText.replaceAll('\\u200b', '') ?? ''"
TEXT = "() => window.jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.getSource()"
PROVIDER = "fetch: async ({ text }) => ({ items: 'alphabet'.startsWith(text) ? [{ insertText: 'alphabet'.slice(text.length) }] : [] })"

def undone(pause_ms):
    page.keyboard.type("alp", delay=15)
    page.wait_for_function(f"() => ({GHOST})() === 'habet'")
    page.wait_for_timeout(pause_ms)
    page.keyboard.press("Tab")
    page.wait_for_function(f"() => ({TEXT})() === 'alphabet'")
    page.keyboard.press("Control+z")
    page.wait_for_timeout(500)
    return page.evaluate(TEXT)

try:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token=x", timeout=1)
            break
        except OSError:
            time.sleep(0.2)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(120_000)
        page.goto(f"http://127.0.0.1:{port}/lab/tree/n.ipynb?reset&token=x", wait_until="domcontentloaded")
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell .cm-content")
        page.evaluate(REGISTER % PROVIDER)
        page.click(".jp-NotebookPanel .jp-Cell .cm-content")
        at_once = undone(0)
        page.keyboard.press("Control+a")
        page.keyboard.press("Backspace")
        page.wait_for_timeout(2000)
        later = undone(1500)
        print(f"alp typed and the rest accepted, then Ctrl+Z: accepted at once {at_once!r}, after a second and a half {later!r}")
        browser.close()
finally:
    server.terminate()
    server.wait()
assert (at_once, later) == ("", "alp"), (at_once, later)
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder"
