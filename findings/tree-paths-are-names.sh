#!/bin/sh
# git: ls-tree takes a path by the letter where ls-files takes it for a pattern, though its page says pattern.
set -eu
# Debian 12's, whatever git is installed here.
pinned=git=1:2.39.5-0+deb12u3
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q "$pinned" > apt 2>&1 || { cat apt; exit 1; }; dpkg -x git_*.deb pinned)
export PATH="$folder/pinned/usr/bin:$PATH" GIT_EXEC_PATH="$folder/pinned/usr/lib/git-core" GIT_TEMPLATE_DIR="$folder/pinned/usr/share/git-core/templates"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
echo "$(git --version): git ls-tree HEAD 'i*.ts' lists no file but one of that very name; git ls-files and git grep take the same words as a pattern;"
echo "most would expect one rule in all (the page of ls-tree says \"a list of patterns to match\"): names such as [id].ts of web frameworks are safe in the one and mean d.ts or i.ts in the others."
git init -q -b main "$folder/work"; cd "$folder/work"
touch i.ts d.ts '[id].ts' id.ts; git add .; git commit -qm x
tree="$(git ls-tree --name-only HEAD -- '[id].ts' | paste -sd' ')"; files="$(git ls-files -- '[id].ts' | paste -sd' ')"; stars="$(git ls-tree --name-only HEAD -- 'i*.ts' | paste -sd' ')"
echo "[id].ts by ls-tree: $tree; by ls-files: $files; i*.ts by ls-tree: ${stars:-nothing}, by ls-files: $(git ls-files -- 'i*.ts' | paste -sd' ')"
[ "$tree" = "[id].ts" ] && [ -z "$stars" ] && [ "$files" != "$tree" ]
