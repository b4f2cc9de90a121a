#!/bin/sh
# Ray Serve: a streaming answer is made to its end while the client reads nothing of it.
# Installs 500 MB.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install "ray[serve]==2.60.0"
cat > "$folder/ask.py" <<'PY'
import socket
import sys
import time
from pathlib import Path
import ray
from ray import serve
from starlette.responses import StreamingResponse

log = Path(sys.argv[1])
print(f"Ray Serve {ray.__version__}: a generator behind the HTTP proxy makes all of 100 MB while its client reads nothing; the proxy holds it;")
print("most would expect the generator to wait, as behind uvicorn alone: one slow reader keeps a long answer in memory, and an engine at work for it.")
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config={"log_level": "ERROR"})

@serve.deployment
class Long:
    async def __call__(self, request):
        async def made():
            for number in range(1, 101):
                log.write_text(str(number))
                yield b"x" * 1_000_000

        return StreamingResponse(made())

serve.run(Long.bind(), route_prefix="/long")
log.write_text("0")
client = socket.create_connection(("127.0.0.1", port))
client.sendall(b"GET /long HTTP/1.1\r\nHost: here\r\n\r\n")
before, steady = "", 0
while steady < 5 and before != "100":
    time.sleep(1)
    steady = steady + 1 if log.read_text() == before != "0" else 0
    before = log.read_text()
print(f"pieces of 1 MB made of 100, while none was read: {before}")
client.close()
ray.shutdown()
assert before == "100", before
PY
RAY_USAGE_STATS_ENABLED=0 "$folder/env/bin/python" "$folder/ask.py" "$folder/log" 2> "$folder/noise" || { tail -n 5 "$folder/noise"; exit 1; }
