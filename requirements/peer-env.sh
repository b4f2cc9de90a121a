#!/usr/bin/env bash
# Builds llama.cpp's server once, for this machine's CPU, from the source inside the llama-cpp-python sdist:
# .venv-peer/bin/llama-server, and .venv-peer/VERSION with what it was built from. 10 to 20 minutes of two cores.
# CFLAGS and CXXFLAGS reach the compiler, for a processor on which AMX does not run: -mno-amx-tile -mno-amx-int8 -mno-amx-bf16.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-peer
wanted=$(sed -n 's/^llama-cpp-python==//p' requirements/peer.txt)
if [ -x "$venv/bin/llama-server" ] && grep -qs "^llama-cpp-python $wanted\$" "$venv/VERSION"; then
    echo "$venv/bin/llama-server is there, from llama-cpp-python $wanted"
    exit 0
fi
for tool in cmake g++ make; do
    command -v "$tool" >/dev/null || { echo "make peer-env needs $tool (Debian: apt-get install cmake g++ make)" >&2; exit 2; }
done
test -x "$venv/bin/python" || "${PYTHON:-python3}" -m venv "$venv"
source=$venv/source
if [ ! -f "$source/vendor/llama.cpp/CMakeLists.txt" ] || ! grep -qs "^$wanted\$" "$source/VERSION"; then
    rm -rf "$source" "$venv/sdist"
    mkdir -p "$source" "$venv/sdist"
    "$venv/bin/pip" download -q --disable-pip-version-check --no-deps --no-binary :all: -d "$venv/sdist" -r requirements/peer.txt
    tar xzf "$venv"/sdist/llama_cpp_python-"$wanted".tar.gz -C "$source" --strip-components=1
    rm -r "$venv/sdist"
    echo "$wanted" >"$source/VERSION"
fi
# Static, so that the binary stands alone; no web pages, no TLS: it serves loopback.
cmake -S "$source/vendor/llama.cpp" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON \
    -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
    -DLLAMA_BUILD_APP=OFF >"$venv/cmake.log"
nice -n 10 cmake --build "$source/build" --target llama-server -j "${JOBS:-2}" >"$venv/build.log" 2>&1
cp "$source/build/bin/llama-server" "$venv/bin/llama-server"
{
    echo "llama-cpp-python $wanted"
    "$venv/bin/llama-server" --version 2>&1 | head -2
} >"$venv/VERSION"
rm -rf "$source/build"
cat "$venv/VERSION"
