#!/bin/sh
# tokenizers and llama.cpp: a merge that stands in a vocabulary twice counts at its last place in the one, at its first in the other.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tokenizers==0.22.2 gguf==0.17.1 numpy==2.3.5 xllamacpp==2026.10.11549
cat > "$folder/ask.py" <<'PY'
import json
import sys
from importlib.metadata import version
import gguf
import numpy as np
import tokenizers
import xllamacpp

print(f"tokenizers {tokenizers.__version__}, llama.cpp in xllamacpp {version('xllamacpp')}: a byte-pair merge that is listed twice has its last rank in the one and its first in the other;")
print("most would expect the first, or a refusal: the same vocabulary as tokenizer.json and as GGUF gives other ids for the same text.")
letters = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
others = [byte for byte in range(256) if byte not in letters]
letters |= {byte: chr(256 + at) for at, byte in enumerate(others)}
tokens = [*(letters[byte] for byte in range(256)), "ab", "bc", "abc", "<end>"]
merges = ["a b", "b c", "ab c", "a b"]

def by_tokenizers(merges):
    model = {"type": "BPE", "vocab": {token: at for at, token in enumerate(tokens)}, "merges": [merge.split() for merge in merges]}
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return len(tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model} | parts)).encode("abc").ids)

def by_llama_cpp(path, width=32):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(256); writer.add_embedding_length(width); writer.add_block_count(1); writer.add_feed_forward_length(width)
    writer.add_head_count(2); writer.add_head_count_kv(2); writer.add_layer_norm_rms_eps(1e-5); writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2"); writer.add_tokenizer_pre("gpt-2"); writer.add_token_list(tokens); writer.add_token_merges(merges)
    writer.add_token_types([1] * (len(tokens) - 1) + [3]); writer.add_bos_token_id(len(tokens) - 1); writer.add_eos_token_id(len(tokens) - 1)
    random = np.random.default_rng(0)
    for name in ("token_embd", "output"):
        writer.add_tensor(f"{name}.weight", random.standard_normal((len(tokens), width)).astype(np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        writer.add_tensor(f"blk.0.{name}.weight", random.standard_normal((width, width)).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
    parameters = xllamacpp.CommonParams()
    parameters.model.path, parameters.n_ctx, parameters.n_parallel, parameters.warmup = path, 256, 1, False
    answer = xllamacpp.Server(parameters).handle_completions({"prompt": "abc", "max_tokens": 1})
    return answer["usage"]["prompt_tokens"]

found = by_tokenizers(merges), by_tokenizers(merges[:-1]), by_llama_cpp(sys.argv[1])
print("merges: a+b, b+c, ab+c, a+b; tokens of 'abc': tokenizers %d (without the second a+b: %d), llama.cpp %d" % found)
assert found == (2, 1, 1), found
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder/made.gguf" 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
