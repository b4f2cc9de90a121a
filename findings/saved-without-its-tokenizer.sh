#!/bin/sh
# OpenVINO GenAI: what is saved of a GGUF file is all of it by one pipeline, and by the other the network without its tokenizer.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install gguf==0.17.1 numpy==2.3.5 openvino-genai==2026.4.1.0
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
import sys
from importlib.metadata import version
from pathlib import Path
import openvino_genai

whole, batches = Path(sys.argv[1]), Path(sys.argv[2])
options, settings = openvino_genai.GenerationConfig(max_new_tokens=4), {"enable_save_ov_model": True}
print(f"openvino-genai {version('openvino-genai')}: with enable_save_ov_model LLMPipeline saves the tokenizer of a GGUF file beside the network, ContinuousBatchingPipeline the network alone;")
print("most would expect one option to save one thing: the folder that the second one writes opens without a word, and refuses the first text.")
made = openvino_genai.LLMPipeline(str(whole / "made.gguf"), "CPU", **settings).generate("ab", options)
openvino_genai.ContinuousBatchingPipeline(str(batches / "made.gguf"), openvino_genai.SchedulerConfig(), "CPU", settings)
saved = [sorted(one.name for one in folder.iterdir() if one.suffix == ".xml") for folder in (whole, batches)]
again = openvino_genai.LLMPipeline(str(whole), "CPU").generate("ab", options)
try:
    openvino_genai.ContinuousBatchingPipeline(str(batches), openvino_genai.SchedulerConfig(), "CPU").generate(["ab"], [options])
    said = "answered"
except RuntimeError as error:
    said = "refused: " + str(error).splitlines()[-1]
print(f"LLMPipeline saves {', '.join(saved[0])}, and answers from the folder {'the same' if again == made else 'something else'}")
print(f"ContinuousBatchingPipeline saves {', '.join(saved[1])}, and a text is {said}")
assert saved == [["openvino_detokenizer.xml", "openvino_model.xml", "openvino_tokenizer.xml"], ["openvino_model.xml"]]
assert again == made and said.startswith("refused: Either openvino_tokenizer.xml was not provided"), said
PY
mkdir "$folder/whole" "$folder/batches"
"$folder/env/bin/python" "$folder/make.py" "$folder/whole/made.gguf"
cp "$folder/whole/made.gguf" "$folder/batches/"
"$folder/env/bin/python" "$folder/open.py" "$folder/whole" "$folder/batches" 2> "$folder/log" || { tail -n 5 "$folder/log"; exit 1; }
