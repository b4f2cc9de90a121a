"""Records what the real llama.vim sends: a script of keys in a real Neovim, a stand-in server with fixed answers.

    python tests/lab/record_llama_vim.py NVIM PLUGIN_FOLDER > tests/lab/llama_vim_requests.json

Run by hand, and kept as a fixture: `test_peer_llama_vim.py` types the same keys through our re-implementation and wants the same
requests in the same order. Pauses are far from the plugin's own times (100 ms, 1 s, 3 s), so that no run differs from another.
"""

import json
import subprocess
import sys
import tempfile
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from json_server import QuietHandler
from lab.llama_vim_script import FILE, KEYS, answer_to

requests: list[dict[str, Any]] = []


class Server(QuietHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        requests.append(body)
        self.say(200, json.dumps({"content": answer_to(body)}, separators=(",", ":")).encode())


def main(nvim: str, plugin: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shapes.py"
        path.write_text(FILE)
        init = Path(folder) / "init.vim"
        init.write_text(
            f"set rtp^={plugin}\nset noswapfile noautoindent shortmess+=I\nfiletype off\n"
            f"let g:llama_config = {{'endpoint_fim': 'http://127.0.0.1:{server.server_port}/infill', 'show_info': 0}}\n"
        )
        socket = str(Path(folder) / "s")
        # A terminal of its own: autocommands of insert mode need a user interface.
        editor = subprocess.Popen(
            ["script", "-qec", f"{nvim} --listen {socket} -u {init} shapes.py", "/dev/null"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        try:
            while not Path(socket).exists():
                time.sleep(0.05)
            time.sleep(4)
            for pause_s, keys in KEYS:
                time.sleep(pause_s)
                subprocess.run([nvim, "--server", socket, "--remote-send", keys], check=True)
            time.sleep(1.5)
        finally:
            subprocess.run([nvim, "--server", socket, "--remote-send", "<Esc>:qa!<CR>"], check=False)
            editor.wait(10)
    for body in requests:
        for chunk in body["input_extra"]:
            del chunk["time"]
    print(json.dumps(requests, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
