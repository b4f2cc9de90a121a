#!/usr/bin/env bash
# Trains the adapter on a lent GPU, in one call: bash lab/gpu/run.sh FOLDER MINUTES [ARG…]
#
# FOLDER holds store.tar.xz (lab/gpu/pack.py), base.gguf, and wheels/ where the machine lacks gguf or tokenizers. State lies in
# $FORETYPE_GPU (default /tmp/foretype-gpu); the same call again goes on where it was. What comes home lies in $OUT.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=${FORETYPE_GPU:-/tmp/foretype-gpu}
out=${OUT:-$state/out}
folder=$1 minutes=$2
shift 2
mkdir -p "$state" "$out"
python=${PYTHON:-python3}
export PYTHONPATH=$here/..:$here/../../models:$here/../../context PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=$state/compiled
[ ! -d "$folder/wheels" ] || "$python" -m pip install -q --no-index --find-links "$folder/wheels" gguf tokenizers
[ -d "$state/validation" ] || tar -C "$state" -xJf "$folder/store.tar.xz"
"$python" -m foretype_lab.adapter.train "${CONFIG:-$here/../configs/adapter-gpu.toml}" --base "$folder/base.gguf" --store "$state" \
  --out "$state/run" --minutes "$minutes" "$@"
cp "$state/run/adapter.gguf" "$state/run/log.jsonl" "$out/"
