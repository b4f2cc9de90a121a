#!/usr/bin/env bash
# lsp-mode 10 for the end-to-end tests in Emacs: the Lisp packages of a later Debian suite, unpacked beside the system's Emacs.
#
#   install-emacs.sh [FOLDER]     default: ~/.local/share/foretype-editors/emacs; prints the folder of the packages
#
# Needs Emacs 28 or newer on the path (Debian: apt-get install emacs-nox). FORETYPE_EMACS_SUITE chooses the suite (default
# forky). Neither the system's packages nor its apt lists are touched.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_DATA_HOME:-$HOME/.local/share}/foretype-editors/emacs}
# The packages hold Lisp source alone; Debian compiles them when it installs them, and Emacs runs them as they are.
"$here/unpack-debian.sh" --only '^elpa-' elpa-lsp-mode "${FORETYPE_EMACS_SUITE:-forky}" "$folder" >/dev/null
folder=$(cd "$folder" && pwd)
echo "$folder/root/usr/share/emacs/site-lisp/elpa-src"
