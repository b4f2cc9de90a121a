#!/bin/sh
# OpenVINO: importing it starts a thread that sends an event of use, and no answer counts as consent.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install openvino==2026.4.1 openvino-telemetry==2025.2.0 numpy==2.3.5
mkdir "$folder/home"
cat > "$folder/ask.py" <<'PY'
import os
import sys
import threading
from importlib.metadata import version
from pathlib import Path
from openvino_telemetry.backend.backend_ga4 import GA4Backend
from openvino_telemetry.utils.opt_in_checker import OptInChecker

print(f"openvino {version('openvino')}, openvino-telemetry {version('openvino-telemetry')}: `import openvino` makes an identity in the home folder and sends an event from a thread;")
print("most would expect that a library which computes sends nothing, or asks before: here it is sent until somebody runs opt_in_out --opt_out, and only a build server is left out.")
sent = []
GA4Backend.send = lambda self, message: sent.append(message.attrs if hasattr(message, "attrs") else message)  # nothing leaves this machine
import openvino

threads = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(1)
made = sorted(path.relative_to(Path.home()).as_posix() for path in Path.home().rglob("*") if path.is_file())
print("answer on file:", OptInChecker().check(False, True).name, "| threads:", *threads, "| made in the home folder:", *made)
events = [event for message in sent for event in message["events"]]
print("sent:", *(f"{event['params']['event_category']} {event['name']}, with {', '.join(sorted(event['params']))}" for event in events))
assert sent[0]["client_id"] and events[0]["name"] == "import" and threads and "intel/openvino_ga_cid" in made
PY
env -i PATH="$PATH" HOME="$folder/home" "$folder/env/bin/python" "$folder/ask.py"
