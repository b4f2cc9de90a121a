#!/bin/sh
# Neovim: changes of a renamed buffer are told under a name that was never opened, and the old one stays open.
set -eu
command -v nvim > /dev/null || { echo "needs nvim 0.7 of Debian 12: nothing was asked"; exit 0; }
said="$(nvim --version | head -n 1)"
case "$said" in "NVIM v0.7."*) ;; *) echo "seen with Neovim 0.7 of Debian 12; this is $said: nothing was asked"; exit 0 ;; esac
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
echo "$said: after :file new.py the client sends didChange of new.py, which it never opened, and after :saveas didSave too; a.py is not closed;"
echo "most would expect didClose and didOpen, as the protocol has it for a document that gets another name: a server that follows it knows nothing of the text from there on."
cat > "$folder/server.py" <<'PY'
import json
import os
import sys

def send(body):
    data = json.dumps({"jsonrpc": "2.0"} | body).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
    sys.stdout.buffer.flush()

with open(sys.argv[1], "w") as log:
    while head := sys.stdin.buffer.readline():
        sys.stdin.buffer.readline()
        message = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
        if message["method"].startswith("textDocument/"):
            name = os.path.basename(message["params"]["textDocument"]["uri"])
            print(message["method"].partition("/")[2], name, file=log, flush=True)
        if message["method"] == "initialize":
            sync = {"openClose": True, "change": 2, "save": True}
            send({"id": message["id"], "result": {"capabilities": {"textDocumentSync": sync}}})
        elif "id" in message:
            send({"id": message["id"], "result": None})
PY
cat > "$folder/drive.lua" <<'LUA'
local folder = vim.env.FOLDER
local client = vim.lsp.start_client({ cmd = { 'python3', folder .. '/server.py', folder .. '/log' }, flags = { debounce_text_changes = 0 } })
vim.wait(5000, function() return vim.lsp.get_client_by_id(client) ~= nil end)
vim.cmd('edit ' .. folder .. '/a.py')
vim.lsp.buf_attach_client(0, client)
local function type_()
  vim.api.nvim_buf_set_text(0, 0, 0, 0, 0, { 'x' })
  vim.wait(300)
end
vim.wait(300)
type_()
vim.cmd('file ' .. folder .. '/new.py')
type_()
vim.cmd('saveas ' .. folder .. '/third.py')
type_()
vim.cmd('qa!')
LUA
echo "a = 1" > "$folder/a.py"
FOLDER="$folder" XDG_STATE_HOME="$folder" timeout 30 nvim --headless --clean -n -c "luafile $folder/drive.lua" > "$folder/screen" 2>&1 < /dev/null
seen="$(paste -sd, "$folder/log" | sed 's/,/, /g')"
echo "open a.py, a key, :file new.py, a key, :saveas third.py, a key: $seen"
case "$seen" in "didOpen a.py, didChange a.py, didChange new.py, didSave third.py, didChange third.py"*) ;; *) exit 1 ;; esac
