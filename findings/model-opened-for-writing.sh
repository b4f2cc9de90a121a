#!/bin/sh
# OpenVINO GenAI: a model file is opened for writing, so one that may only be read is not served.
set -eu
[ "$(uname -s)" = Linux ] || { echo "nothing was asked: this reads Linux's messages"; exit 0; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install gguf==0.17.1 numpy==2.3.5 openvino-genai==2026.4.1.0
mkdir "$folder/disk"
cat > "$folder/make.py" <<'PY'
import sys
import gguf
import numpy as np

letters = {byte: chr(byte) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]}
others = [byte for byte in range(256) if byte not in letters]
letters |= {byte: chr(256 + at) for at, byte in enumerate(others)}
tokens, width = [*(letters[byte] for byte in range(256)), "ab", "<end>"], 64
writer = gguf.GGUFWriter(sys.argv[1], "llama")
writer.add_context_length(256); writer.add_embedding_length(width); writer.add_block_count(1); writer.add_feed_forward_length(width)
writer.add_head_count(2); writer.add_head_count_kv(2); writer.add_layer_norm_rms_eps(1e-5); writer.add_vocab_size(len(tokens))
writer.add_rope_dimension_count(32); writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
writer.add_tokenizer_model("gpt2"); writer.add_tokenizer_pre("gpt-2"); writer.add_token_list(tokens); writer.add_token_merges(["a b"])
writer.add_token_types([1] * 257 + [3]); writer.add_bos_token_id(257); writer.add_eos_token_id(257)
random = np.random.default_rng(0)
for name in ("token_embd", "output"):
    writer.add_tensor(f"{name}.weight", random.standard_normal((len(tokens), width)).astype(np.float16))
for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
    writer.add_tensor(f"blk.0.{name}.weight", random.standard_normal((width, width)).astype(np.float16))
for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
    writer.add_tensor(f"{name}.weight", np.ones(width, np.float32))
writer.write_header_to_file(); writer.write_kv_data_to_file(); writer.write_tensors_to_file(); writer.close()
PY
cat > "$folder/open.py" <<'PY'
import hashlib
import sys
from importlib.metadata import version
from pathlib import Path
import openvino_genai

model, kept = Path(sys.argv[1]), sys.argv[2] == "writable"
digest = hashlib.sha256(model.read_bytes()).hexdigest()
if kept:
    print(f"openvino-genai {version('openvino-genai')}: a GGUF file is opened for reading and writing, though nothing is written to it, so one that may only be read cannot be served;")
    print("most would expect that weights are only read: in a container with a read-only root, or from a shared folder, the model is told to be unreadable.")
try:
    openvino_genai.ContinuousBatchingPipeline(str(model), openvino_genai.SchedulerConfig(), "CPU")
    said = "opened"
except RuntimeError as error:
    said = "refused: " + str(error).splitlines()[-1].strip().replace(str(model), "FILE")
print(f"{'a file of the user' if kept else 'the same file, read-only'}: {said}; its bytes are {'the same' if hashlib.sha256(model.read_bytes()).hexdigest() == digest else 'others'} afterwards")
assert said.startswith("opened" if kept else "refused: Failed to open 'FILE'")
PY
"$folder/env/bin/python" "$folder/make.py" "$folder/disk/made.gguf"
"$folder/env/bin/python" "$folder/open.py" "$folder/disk/made.gguf" writable 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
chmod 444 "$folder/disk/made.gguf"
[ "$(id -u)" -ne 0 ] || again="unshare --mount sh -c"  # rights are nothing to root, a read-only mount is
${again:-sh -c} "[ $(id -u) -ne 0 ] || { mount --bind '$folder/disk' '$folder/disk' && mount -o remount,bind,ro '$folder/disk'; }
'$folder/env/bin/python' '$folder/open.py' '$folder/disk/made.gguf' read-only" 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
