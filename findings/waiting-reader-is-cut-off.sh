#!/bin/sh
# Redis: who waits for a stream loses the connection when the server becomes a replica; who does not wait keeps it.
set -eu
# Debian 12's, whatever Redis is installed here.
pinned="redis-server=5:7.0.15-1~deb12u10 redis-tools=5:7.0.15-1~deb12u10 liblzf1=3.6-3 libjemalloc2=5.3.0-1 libatomic1=12.2.0-14+deb12u1"
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q $pinned > apt 2>&1 || { cat apt; exit 1; }; for deb in *.deb; do dpkg -x "$deb" pinned; done)
export PATH="$folder/pinned/usr/bin:$PATH" LD_LIBRARY_PATH="$(echo "$folder"/pinned/usr/lib/*-linux-gnu)"
cat > "$folder/ask.py" <<'PY'
import socket
import subprocess
import sys
import time

folder = sys.argv[1]
server = subprocess.Popen(
    ["redis-server", "--port", "0", "--unixsocket", folder + "/redis", "--dir", folder, "--save", ""], stdout=subprocess.DEVNULL
)

def connection():
    for _ in range(200):
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(folder + "/redis")
            made.settimeout(5)
            return made
        except OSError:
            time.sleep(0.05)
    raise SystemExit("no server")

def ask(to, words):
    to.sendall(words.encode() + b"\r\n")
    return to.recv(10_000).decode()

try:
    admin, idle, waiting = connection(), connection(), connection()
    version = next(line for line in ask(admin, "INFO server").split("\r\n") if line.startswith("redis_version:"))
    print(version.replace("redis_version:", "Redis ") + ": REPLICAOF ends a waiting XREAD with an error, and its connection; connections that do not wait stay open.")
    print("most would expect an error and no more, on every connection alike: a reader that asks for $ again when it is back never hears of what was added meanwhile.")
    assert ask(idle, "PING") == "+PONG\r\n"
    waiting.sendall(b"XREAD BLOCK 0 STREAMS told $\r\n")
    while "flags=b" not in ask(admin, "CLIENT LIST"):
        time.sleep(0.05)
    ask(admin, "REPLICAOF 127.0.0.1 1")
    ended = waiting.recv(10_000).decode()
    closed = waiting.recv(10_000) == b""
    stays = ask(idle, "PING")
    ask(admin, "REPLICAOF NO ONE")
    ask(admin, "XADD told * word meanwhile")
    again = connection()
    later = ask(again, "XREAD BLOCK 500 STREAMS told $")
    print(f"the reader that waits: {ended.strip()!r}, {'closed' if closed else 'open'} | one that does not: {stays.strip()!r} | asked again for $: {later.strip()!r}")
    assert ended.startswith("-UNBLOCKED") and closed and stays == "+PONG\r\n" and later == "*-1\r\n"
finally:
    server.kill()
    server.wait()
PY
python3 "$folder/ask.py" "$folder"
