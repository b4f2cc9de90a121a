#!/bin/sh
# Ray Serve: a cancelled call of a plain method runs on, and the replica takes the next one beside it.
# Installs 500 MB.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install "ray[serve]==2.60.0"
cat > "$folder/ask.py" <<'PY'
import os
import sys
import time
from pathlib import Path
import ray
from ray import serve

log = Path(sys.argv[1])
print(f"Ray Serve {ray.__version__}: after response.cancel() the next request runs beside the cancelled call, with max_ongoing_requests=1;")
print("most would expect that a replica which takes one request at a time never runs two: a thread cannot be cancelled, yet its place is given away, and so is what it works with.")
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(http_options={"location": "NoServer"}, logging_config={"log_level": "ERROR"})

@serve.deployment(max_ongoing_requests=1)
class Slow:
    def __init__(self):
        self.at_work = 0

    def __call__(self, number):
        self.at_work += 1
        with log.open("a") as file:
            print(f"call {number} begins, {self.at_work} at work", file=file, flush=True)
            time.sleep(0 if number else 6)
            self.at_work -= 1
            print(f"call {number} ends", file=file, flush=True)

handle = serve.run(Slow.bind(), route_prefix=None)
log.touch()
first = handle.remote(0)
while "begins" not in log.read_text():
    time.sleep(0.1)
first.cancel()
handle.remote(1).result(timeout_s=60)
while "call 0 ends" not in log.read_text():
    time.sleep(0.1)
seen = log.read_text().splitlines()
print(", ".join(seen))
ray.shutdown()
assert seen == ["call 0 begins, 1 at work", "call 1 begins, 2 at work", "call 1 ends", "call 0 ends"], seen
PY
RAY_USAGE_STATS_ENABLED=0 "$folder/env/bin/python" "$folder/ask.py" "$folder/log" 2> "$folder/noise" || { tail -n 5 "$folder/noise"; exit 1; }
