#!/bin/sh
# tokenizers: the id that tokenizer.json states for an added token counts only where the text is in the model's vocabulary too.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tokenizers==0.22.2
cat > "$folder/ask.py" <<'PY'
import json
import tokenizers
from tokenizers import Tokenizer

print(f"tokenizers {tokenizers.__version__}: an added token that the vocabulary lacks gets the next free id, whatever id the file states for it;")
print("most would expect the stated id, or a refusal, since prompts are built from the ids that the file states.")

def added(id, text):
    return {"id": id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

vocabulary = {letter: at for at, letter in enumerate("abcd")} | {"<in>": 4}
file = {
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "decoder": None,
    "added_tokens": [added(4, "<in>"), added(900, "<hole>"), added(901, "<end>")],
    "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
}
loaded = Tokenizer.from_str(json.dumps(file))
found = {text: loaded.token_to_id(text) for text in ("<in>", "<hole>", "<end>")}
print("stated: <in> 4, <hole> 900, <end> 901; loaded:", ", ".join(f"{text} {id}" for text, id in found.items()))
print("written again:", [token["id"] for token in json.loads(loaded.to_str())["added_tokens"]])
assert found == {"<in>": 4, "<hole>": 5, "<end>": 6}
PY
"$folder/env/bin/python" "$folder/ask.py"
