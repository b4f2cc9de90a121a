#!/bin/sh
# tokenizers: one stray byte spoils the letters beside it where a vocabulary has its bytes as tokens (ByteFallback).
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tokenizers==0.22.2
cat > "$folder/ask.py" <<'PY'
import json
import tokenizers
from tokenizers import Tokenizer

print(f"tokenizers {tokenizers.__version__}: ByteFallback decodes a run of byte tokens as a whole or not at all: one stray byte makes a U+FFFD of every byte of the run;")
print("most would expect the letters of the run that are whole, and one U+FFFD for the stray byte, as bytes.decode(errors='replace') and the ByteLevel decoder give.")
bytes_as_tokens = {f"<0x{byte:02X}>": byte for byte in range(256)}
fallback = Tokenizer.from_str(json.dumps({
    "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": None, "post_processor": None, "added_tokens": [],
    "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
    "model": {"type": "BPE", "vocab": bytes_as_tokens | {"x": 256}, "merges": [], "byte_fallback": True},
}))
word = "né".encode()[1:]
whole, spoilt = [256, *word, 256], [256, *word, *word, 0xFF, 256]
print("x é x:        ", ascii(fallback.decode(whole)))
print("x é é 0xFF x: ", ascii(fallback.decode(spoilt)))
print("bytes.decode: ", ascii(b"x".join([b"", word * 2 + b"\xff", b""]).decode("utf-8", "replace")))
assert fallback.decode(whole) == "xéx" and fallback.decode(spoilt) == "x" + "\ufffd" * 5 + "x"
PY
"$folder/env/bin/python" "$folder/ask.py"
