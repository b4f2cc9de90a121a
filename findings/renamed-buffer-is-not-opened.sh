#!/bin/sh
# Neovim: changes of a renamed buffer are told under a name that was never opened, and the old one stays open.
set -eu
# Debian 12's, whatever Neovim is installed here.
pinned="neovim=0.7.2-7 neovim-runtime=0.7.2-7 lua-luv=1.44.2-0-1 libuv1=1.44.2-1+deb12u1 libmsgpackc2=4.0.0-3 libvterm0=0.1.4-1 libtermkey1=0.22-1 libunibilium4=2.1.0-1 libtree-sitter0=0.20.7-1 libluajit-5.1-2=2.1.0~beta3+git20220320+dfsg-4.1+deb12u1 libluajit-5.1-common=2.1.0~beta3+git20220320+dfsg-4.1+deb12u1"
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q $pinned > apt 2>&1 || { cat apt; exit 1; }; for deb in *.deb; do dpkg -x "$deb" pinned; done)
export PATH="$folder/pinned/usr/bin:$PATH" LD_LIBRARY_PATH="$(echo "$folder"/pinned/usr/lib/*-linux-gnu)" VIMRUNTIME="$folder/pinned/usr/share/nvim/runtime"
said="$(nvim --version | head -n 1)"
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
