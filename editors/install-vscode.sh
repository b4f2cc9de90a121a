#!/usr/bin/env bash
# VS Code for the end-to-end tests: code-server, the node it wants, and playwright-core, from the npm registry.
#
#   install-vscode.sh [FOLDER]     default: ~/.local/share/foretype-editors/vscode
#
# Takes about a minute and 800 MB. Needs npm, a C++ compiler and the headers of krb5, xkbfile, x11 and secret
# (Debian: g++ make pkg-config libkrb5-dev libxkbfile-dev libx11-dev libsecret-1-dev), and Chromium on the path.
set -euo pipefail
folder=${1:-${XDG_DATA_HOME:-$HOME/.local/share}/foretype-editors/vscode}
for program in npm g++ make pkg-config; do
  command -v "$program" >/dev/null || { echo "install-vscode: needs $program" >&2; exit 1; }
done
command -v chromium >/dev/null || command -v google-chrome >/dev/null || echo "install-vscode: the tests need Chromium too" >&2
mkdir -p "$folder/node"
cd "$folder"
folder=$PWD
quiet=(--no-package-lock --no-fund --no-audit --loglevel=error)
# A folder of its own: the package unpacks node and its headers inside itself, and npm would prune them with the next install.
(cd node && echo '{"private": true}' >package.json && npm install "${quiet[@]}" node@24.21.0)
export PATH=$folder/node/node_modules/node/bin:$PATH
npm_config_nodedir=$(find "$folder/node" -path '*/include/node/common.gypi' -print -quit) # else node-gyp downloads headers
export npm_config_nodedir=${npm_config_nodedir%/include/node/common.gypi}
# Half of the time went into optimising what is loaded a few times.
mkdir -p quick
for compiler in cc c++; do
  printf '#!/bin/sh\nexec %s "$@" -O0\n' "$compiler" >"quick/$compiler"
  chmod +x "quick/$compiler"
done
export CC="$folder/quick/cc" CXX="$folder/quick/c++"
echo '{"private": true}' >package.json
npm install "${quiet[@]}" code-server@4.139.1 playwright-core@1.65.1
node node_modules/code-server/out/node/entry.js --version
