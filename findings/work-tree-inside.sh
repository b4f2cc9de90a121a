#!/bin/sh
# git: a linked work tree that lies inside of the main one is an untracked folder there, and `git add .` makes a submodule of it.
set -eu
# Debian 12's, whatever git is installed here.
pinned=git=1:2.39.5-0+deb12u3
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q "$pinned" > apt 2>&1 || { cat apt; exit 1; }; dpkg -x git_*.deb pinned)
export PATH="$folder/pinned/usr/bin:$PATH" GIT_EXEC_PATH="$folder/pinned/usr/lib/git-core" GIT_TEMPLATE_DIR="$folder/pinned/usr/share/git-core/templates"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
echo "$(git --version): git worktree add inner makes an untracked folder in the main work tree, which git add . takes in as a link to a commit;"
echo "most would expect that git knows its own work trees and passes over them: an index of the folder holds every file once more for each."
git init -q -b main "$folder/work"; cd "$folder/work"
echo a > a.py; git add .; git commit -qm x
git worktree add -q inner -b feature
status="$(git status --short)"
git add . 2> "$folder/said"
echo "status: $status; after git add .: $(git ls-files --stage | cut -d' ' -f1,2 | cut -c1-14 | paste -sd' ') ($(head -n 1 "$folder/said"))"
echo "files called a.py under the main work tree: $(find . -name a.py | sort | paste -sd' ')"
[ "$status" = "?? inner/" ] && git ls-files --stage inner | grep -q '^160000 '
