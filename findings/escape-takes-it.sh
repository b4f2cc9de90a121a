#!/bin/sh
# Helix: Escape takes the completion item that is selected, with its edits elsewhere, and no key runs an item's command.
set -eu
# A later Debian's, with the C library that it was built for, whatever Helix is installed here; its screen is drawn by this machine's tmux.
pinned=hx=25.07.1+20260723+ds+~0.3.3+ds+~0.4.0+20260627+ds-3 suite=forky
command -v tmux > /dev/null || { echo "needs tmux: apt-get install tmux"; exit 1; }
folder=$(mktemp -d); trap 'tmux -S "$folder/tmux" kill-server 2> /dev/null || true; rm -rf "$folder"' EXIT
mirror=$(apt-get indextargets --format '$(ORIGIN)|$(REPO_URI)' 'Created-By: Packages' | sed -n 's/^Debian|//p' | head -n 1)
mkdir -p "$folder/apt/lists/partial" "$folder/apt/archives/partial"; : > "$folder/apt/status"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$folder/apt/sources.list"
apart() {
    apt-get -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt" -o Dir::Etc::sourcelist="$folder/apt/sources.list" \
        -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferencesparts=/dev/null -o APT::Sandbox::User=root -o APT::Install-Recommends=false \
        -o Debug::NoLocking=1 -qq "$@" > "$folder/apt.log" 2>&1 || { cat "$folder/apt.log"; exit 1; }
}
apart update; apart --yes --download-only install "$pinned"
for deb in "$folder"/apt/archives/*.deb; do dpkg -x "$deb" "$folder/root"; done
loader=$(find "$folder/root" -name 'ld-linux-*.so.*' -type f | head -n 1)
libraries=$(find "$folder/root" -name '*.so*' -path '*-linux-gnu*' ! -path '*/gconv/*' -printf '%h\n' | sort -u | paste -sd:)
mkdir "$folder/bin"; export PATH="$folder/bin:$PATH"
printf '#!/bin/sh\nHELIX_RUNTIME="%s/root/usr/lib/hx/runtime" exec "%s" --library-path "%s" "%s/root/usr/lib/hx/hx" "$@"\n' "$folder" "$loader" "$libraries" "$folder" > "$folder/bin/hx"
chmod +x "$folder/bin/hx"
said="$(hx --version | head -n 1)"
echo "$said: an item that was only selected (Tab) is taken by Escape, with its import line; neither Escape nor Enter runs the item's command;"
echo "most would expect Escape to leave the menu as it does elsewhere, and the command to tell the server what was taken: one that counts by commands hears of none."
cat > "$folder/server.py" <<'PY'
import json
import sys

def send(body):
    data = json.dumps({"jsonrpc": "2.0"} | body).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
    sys.stdout.buffer.flush()

def item(name):
    top = {"line": 0, "character": 0}
    command = {"title": "Taken", "command": "taken", "arguments": [name]}
    edits = [{"range": {"start": top, "end": top}, "newText": "import made\n"}]
    return {"label": name, "kind": 6, "command": command, "additionalTextEdits": edits}

with open(sys.argv[1], "w") as log:
    while head := sys.stdin.buffer.readline():
        sys.stdin.buffer.readline()
        message = json.loads(sys.stdin.buffer.read(int(head.split(b":")[1])))
        method, result = message.get("method"), None
        if method == "initialize":
            sync = {"openClose": True, "change": 2, "save": {"includeText": True}}
            result = {"capabilities": {"textDocumentSync": sync, "completionProvider": {}, "executeCommandProvider": {"commands": ["taken"]}}}
        elif method == "textDocument/completion":
            result = [item("alpha_one"), item("alpha_two")]
        if method == "textDocument/didSave":
            print("saved", json.dumps(message["params"]["text"]), file=log, flush=True)
        elif method in ("textDocument/didOpen", "textDocument/completion", "workspace/executeCommand"):
            print(method, file=log, flush=True)
        if "id" in message and method:
            send({"id": message["id"], "result": result})
PY
mkdir -p "$folder/home/.config/helix" "$folder/work"
printf '[language-server.it]\ncommand = "python3"\nargs = ["%s/server.py", "%s/log"]\n[[language]]\nname = "python"\nlanguage-servers = ["it"]\n' "$folder" "$folder" > "$folder/home/.config/helix/languages.toml"
keys() { for key; do tmux -S "$folder/tmux" send-keys "$key"; sleep 0.4; done; }
wait_for() { for _ in $(seq 150); do ! grep -q "$1" "$folder/log" 2> /dev/null || return 0; sleep 0.2; done; echo "never: $1"; exit 1; }
asked() { # the key at the end
    rm -f "$folder/log"; echo "x = 1" > "$folder/work/a.py"
    HOME="$folder/home" XDG_CONFIG_HOME="$folder/home/.config" tmux -S "$folder/tmux" -f /dev/null new-session -d -x 80 -y 20 -c "$folder/work" "hx $folder/work/a.py"
    tmux -S "$folder/tmux" set -g escape-time 0
    wait_for didOpen; keys g e o a l p; wait_for completion; sleep 1
    keys Tab "$1" Escape : w Enter; wait_for saved
    tmux -S "$folder/tmux" kill-server
    printf '%s\n' "$(tail -n 1 "$folder/log"), commands: $(grep -c executeCommand "$folder/log")"
}
escape="$(asked Escape)"; enter="$(asked Enter)"; dropped="$(asked C-c)"
printf '%s\n' "alp, Tab, then Escape: $escape | Enter: $enter | Ctrl-c: $dropped"
wanted='saved "import made\nx = 1\nalpha_one\n", commands: 0'
[ "$escape" = "$wanted" ] && [ "$enter" = "$wanted" ] && [ "$dropped" = 'saved "x = 1\nalp\n", commands: 0' ]
