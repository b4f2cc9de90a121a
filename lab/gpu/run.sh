#!/usr/bin/env bash
# One call on a lent machine. State between calls lies in $FORETYPE_GPU (default /tmp/foretype-gpu), what comes home in $OUT.
#
#   run.sh receive DIR                      takes the pieces in DIR
#   run.sh train CONFIG TOKENS CALL [ARG…]  trains up to TOKENS in all, CALL minutes in this call, and brings weights and log home
#   run.sh sweep CONFIG TOKENS              Muon and AdamW at three rates each, TOKENS each, and brings the logs home
#   run.sh from DIR                         starts again on a fresh machine from weights that came home
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=${FORETYPE_GPU:-/tmp/foretype-gpu}
out=${OUT:-$state/out}
mkdir -p "$state/pieces" "$out"
export PYTHONPATH=$here/..:$here/../../models:$here/../../context PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=$state/compiled
python=${PYTHON:-python3}
tokenizer=$here/../../models/foretype_models/artifacts/tokenizer.json
workers=${WORKERS:-$(($(nproc) - 2))}

stores() {
  [ -e "$state/store/validation/index.json" ] && [ "$state/store/validation/index.json" -nt "$state/pieces" ] && return
  "$python" "$here/pack.py" store --pieces "$state/pieces" --store "$state/store"
  touch "$state/store/validation/index.json"
}

case $1 in
  receive)
    cp "$2"/*.xz "$state/pieces/"
    ls -l "$state/pieces"
    ;;
  from)
    "$python" "$here/pack.py" join --pieces "$2" --checkpoint "$state/begin.pt"
    ;;
  train)
    config=$2 tokens=$3 call=$4
    shift 4
    stores
    name=$(basename "$config" .toml)
    run=$state/run-$name
    [ -e "$state/begin.pt" ] && [ ! -e "$run/last.pt" ] && set -- "$@" --from "$state/begin.pt"
    "$python" -m foretype_lab.training.train "$config" --store "$state/store" --tokenizer "$tokenizer" --out "$run" \
      --tokens "$tokens" --call-minutes "$call" --workers "$workers" "$@" | tail -n 30
    "$python" "$here/pack.py" split --checkpoint "$run/last.pt" --out "$out"
    cp "$run/log.jsonl" "$out/"
    ;;
  sweep)
    config=$2 tokens=$3
    stores
    for one in muon:0.003 muon:0.006 muon:0.012 adamw:0.001 adamw:0.003 adamw:0.006; do
      kind=${one%:*} rate=${one#*:}
      [ "$kind" = muon ] && rates=(--set "muon_rate=$rate") || rates=(--set "adamw_rate=$rate")
      rm -rf "$state/sweep-$kind-$rate"
      "$python" -m foretype_lab.training.train "$config" --store "$state/store" --tokenizer "$tokenizer" \
        --out "$state/sweep-$kind-$rate" --tokens "$tokens" --workers "$workers" --set "optimizer=$kind" "${rates[@]}" \
        > "$state/sweep.log" 2>&1 || tail -n 20 "$state/sweep.log"
      tail -n 1 "$state/sweep-$kind-$rate/log.jsonl" | sed "s/^/$kind $rate /" | tee -a "$out/sweep.txt"
    done
    ;;
  *)
    sed -n '2,8p' "$0"
    exit 2
    ;;
esac
