#!/usr/bin/env bash
# arctic-inference for vLLM's `suffix` speculation, into .venv-vllm: a source release whose build asks for a CUDA torch that
# nothing of it uses, so it is built beside the torch that is there.
set -eu
pip=.venv-vllm/bin/pip
flags="--disable-pip-version-check -q"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
command -v cmake >/dev/null && command -v c++ >/dev/null || { echo "the build needs cmake and a C++20 compiler"; exit 1; }
$pip install $flags --target "$tools" setuptools wheel nanobind==2.9.2 grpcio-tools==1.75.1
PYTHONPATH=$tools $pip install $flags --no-build-isolation --no-deps arctic-inference==0.1.1
.venv-vllm/bin/python -P -c 'import arctic_inference.suffix_decoding; print("suffix speculation is there")'
