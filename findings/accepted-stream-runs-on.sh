#!/bin/sh
# JupyterLab: the stream of an inline suggestion that was accepted is read on to its end.
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

print(f"JupyterLab {version('jupyterlab')}: a provider's stream() is asked for all of its pieces after the suggestion was accepted, and what comes is thrown away;")
print("most would expect the generator to be ended at the accept, as `for await` ends one that it leaves: the model behind it writes on for nobody.")
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
PROVIDER = """fetch: async ({ text }) => ({ items: text === 'al' ? [{ insertText: '', isIncomplete: true, token: 't' }] : [] }),
  async *stream() {
    let all = '';
    try {
      for (const piece of ['pha', 'bet', ' one', ' two', ' three']) {
        await new Promise((resolve) => setTimeout(resolve, 1000));
        window.seen.push((all += piece));
        yield { response: { insertText: all } };
      }
    } finally { window.seen.push('ended'); }
  }"""
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
        page.keyboard.type("al")
        page.wait_for_function(f"() => ({GHOST})().includes('bet')")
        page.keyboard.press("Tab")
        page.evaluate("() => { window.seen.push('accepted'); }")
        page.wait_for_function("() => window.seen.includes('ended')")
        text, seen = page.evaluate(TEXT), page.evaluate("() => window.seen")
        print(f"in the cell: {text!r}; the generator: {seen}")
        browser.close()
finally:
    server.terminate()
    server.wait()
assert text == "alphabet" and seen.index("accepted") < seen.index("alphabet one"[2:]) < seen.index("alphabet one two three"[2:]) < seen.index("ended"), seen
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder"
