#!/bin/sh
# gguf: a metadata string that is empty is not written.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install gguf==0.17.1 numpy==2.3.5
cat > "$folder/ask.py" <<'PY'
import sys
from importlib.metadata import version
import gguf

print(f"gguf {version('gguf')}: GGUFWriter.add_string leaves out a key whose value is empty, and says nothing;")
print("most would expect the key with an empty string: a reader cannot tell a template or suffix that is empty from one that nobody stated.")
path = sys.argv[1]
writer = gguf.GGUFWriter(path, "llama")
writer.add_string("tokenizer.chat_template", "")
writer.add_string("general.basename", "x")
writer.add_array("some.list", [])
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
keys = [key for key in gguf.GGUFReader(path).fields if not key.startswith("GGUF.")]
print("added: tokenizer.chat_template '', general.basename 'x', some.list []; in the file:", ", ".join(keys))
assert "general.basename" in keys and "tokenizer.chat_template" not in keys and "some.list" not in keys
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder/made.gguf"
