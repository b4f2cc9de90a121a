#!/usr/bin/env bash
# Installs the gateways that `foretype bench peer-load` measures beside ours, each into an environment of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
while IFS= read -r line; do
    case $line in '' | '#'*) continue ;; esac
    name=${line%%[=[]*}
    venv=.venv-peer-gateways/$name
    test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check "$line"
    test -x "$venv/bin/$name"
    echo "$venv/bin/$name: $("$venv/bin/pip" show "$name" 2>/dev/null | sed -n 's/^Version: //p')"
done <requirements/peer-gateways.txt
