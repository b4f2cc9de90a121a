#!/usr/bin/env bash
# Neovim 0.12 (native inline completion) for the end-to-end tests, from a later Debian suite.
#
#   install-neovim.sh [FOLDER]     default: ~/.local/share/foretype-editors/neovim; prints the path of `nvim`
#
# FORETYPE_NEOVIM_SUITE chooses the suite (default forky).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_DATA_HOME:-$HOME/.local/share}/foretype-editors/neovim}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
version=$("$here/unpack-debian.sh" neovim "${FORETYPE_NEOVIM_SUITE:-forky}" "$folder" usr/bin/nvim)
mkdir -p "$folder/bin"
cat >"$folder/bin/nvim" <<END
#!/bin/sh
# Neovim $version with its own runtime.
VIMRUNTIME='$folder/root/usr/share/nvim/runtime' exec '$folder/root/usr/bin/nvim' "\$@"
END
chmod +x "$folder/bin/nvim"
"$folder/bin/nvim" --version | head -n 1 >&2
echo "$folder/bin/nvim"
