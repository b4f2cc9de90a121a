#!/bin/sh
# tokenizers: ByteLevel's add_prefix_space puts a blank behind every control token too, not before the text alone.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tokenizers==0.22.2
cat > "$folder/ask.py" <<'PY'
import json
import tokenizers
from tokenizers import Tokenizer

print(f"tokenizers {tokenizers.__version__}: with add_prefix_space the ByteLevel step puts a blank before each part of a text between control tokens, before a line end too;")
print("most would expect one blank, before the text: so a prompt that is put together of parts has blanks that its file lacks, right where the hole is.")
vocabulary = {letter: at for at, letter in enumerate(["\u0120", "\u010a", "a", "b", "c", "d"])} | {"<hole>": 6}
tokenizer = Tokenizer.from_str(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "added_tokens": [{"id": 6, "content": "<hole>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
}))
for text in ("ab<hole>cd", "ab<hole>\ncd", "<hole>ab"):
    ids = tokenizer.encode(text).ids
    print(f"{text!r:16} is read as", repr(tokenizer.decode(ids, skip_special_tokens=False)))
assert tokenizer.encode("ab<hole>cd").tokens == ["\u0120", "a", "b", "<hole>", "\u0120", "c", "d"]
assert tokenizer.encode("ab<hole>\ncd").tokens[3:6] == ["<hole>", "\u0120", "\u010a"]
PY
"$folder/env/bin/python" "$folder/ask.py"
