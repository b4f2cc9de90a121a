#!/bin/sh
# llama.cpp: a request for no tokens is answered with one, and it counts.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install gguf==0.17.1 numpy==2.3.5 xllamacpp==2026.10.11549
cat > "$folder/ask.py" <<'PY'
import sys
from importlib.metadata import version
import gguf
import numpy as np
import xllamacpp

print(f"llama.cpp in xllamacpp {version('xllamacpp')}: max_tokens 0 (and n_predict 0) makes a token, writes it and counts it, as 1 does;")
print("most would expect an empty answer with the prompt in the cache, which its own page says of n_predict 0: whoever warms a cache so shows or bills a token that nobody asked for.")
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
found = []
for asked in ({"max_tokens": 0}, {"n_predict": 0}, {"max_tokens": 1}):
    answer = server.handle_completions({"prompt": "def f(a):", "temperature": 0} | asked)
    found.append((answer["choices"][0]["text"], answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]))
    print(asked, "text %r, tokens %d, ended by %s" % found[-1])
assert found[0] == found[1] == found[2] and found[0][1] == 1
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder/made.gguf" 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
