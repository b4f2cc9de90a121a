#!/usr/bin/env bash
# Helix for the end-to-end tests, from a later Debian suite.
#
#   install-helix.sh [FOLDER]     default: ~/.local/share/foretype-editors/helix; prints the path of `hx`
#
# FORETYPE_HELIX_SUITE chooses the suite (default forky).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_DATA_HOME:-$HOME/.local/share}/foretype-editors/helix}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
version=$("$here/unpack-debian.sh" hx "${FORETYPE_HELIX_SUITE:-forky}" "$folder" usr/lib/hx/hx)
mkdir -p "$folder/bin"
cat >"$folder/bin/hx" <<END
#!/bin/sh
# Helix $version with its own runtime.
HELIX_RUNTIME='$folder/root/usr/lib/hx/runtime' exec '$folder/root/usr/lib/hx/hx' "\$@"
END
chmod +x "$folder/bin/hx"
"$folder/bin/hx" --version >&2
echo "$folder/bin/hx"
