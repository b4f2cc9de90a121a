#!/bin/sh
# git: a linked work tree that lies inside of the main one is an untracked folder there, and `git add .` makes a submodule of it.
set -eu
case "$(git --version)" in *" 2.39."*) ;; *) echo "seen with git 2.39 of Debian 12; this is $(git --version): nothing was asked"; exit 0 ;; esac
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
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
