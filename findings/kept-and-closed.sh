#!/bin/sh
# llama.cpp's server: a streamed answer says that the connection is kept, and the server closes it.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install gguf==0.17.1 numpy==2.3.5 xllamacpp==2026.10.11549
cat > "$folder/ask.py" <<'PY'
import json
import socket
import sys
from importlib.metadata import version
from urllib.parse import urlsplit
import gguf
import numpy as np
import xllamacpp

print(f"llama.cpp in xllamacpp {version('xllamacpp')}: a streamed answer says `Keep-Alive: timeout=5, max=100`, ends with its last chunk, and the server closes the connection at once;")
print("most would expect what the header says, and what holds for an answer that is not streamed: whoever asks the next thing on the same connection is hung up on without an answer.")
letters = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
others = [byte for byte in range(256) if byte not in letters]
letters |= {byte: chr(256 + at) for at, byte in enumerate(others)}
tokens, width = [*(letters[byte] for byte in range(256)), "ab", "<end>"], 32
writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_context_length(256); writer.add_embedding_length(width); writer.add_block_count(1); writer.add_feed_forward_length(width)
writer.add_head_count(2); writer.add_head_count_kv(2); writer.add_layer_norm_rms_eps(1e-5); writer.add_vocab_size(len(tokens))
writer.add_tokenizer_model("gpt2"); writer.add_tokenizer_pre("gpt-2"); writer.add_token_list(tokens); writer.add_token_merges(["a b"])
writer.add_token_types([1] * 257 + [3]); writer.add_bos_token_id(257); writer.add_eos_token_id(257)
random = np.random.default_rng(0)
for name in ("token_embd", "output"):
    writer.add_tensor(f"{name}.weight", random.standard_normal((len(tokens), width)).astype(np.float32))
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    writer.add_tensor(f"blk.0.{name}.weight", random.standard_normal((width, width)).astype(np.float32))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_ctx, parameters.n_parallel, parameters.warmup = sys.argv[1], 256, 1, False
server = xllamacpp.Server(parameters)
address = urlsplit(server.listening_address)
found = {}
for stream in (False, True):
    body = json.dumps({"prompt": "def f(a):", "n_predict": 2, "stream": stream}).encode()
    with socket.create_connection((address.hostname, address.port), timeout=3) as connection:
        connection.sendall(b"POST /completion HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        said, piece = b"", b"."
        try:
            while piece:
                said += (piece := connection.recv(65536))
            after = "closed"
        except TimeoutError:
            after = "open after three seconds"
    fields = said.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    kept = [field for field in fields if field.lower().startswith(("connection", "keep-alive"))]
    found[stream] = kept, after, said.endswith(b"0\r\n\r\n")
    print("streamed" if stream else "as a whole", "|", *kept, "| connection", after)
assert found[False] == (found[True][0], "open after three seconds", False) and found[True][1:] == ("closed", True), found
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder/made.gguf" 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
