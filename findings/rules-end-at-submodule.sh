#!/bin/sh
# git: the rules of an outer .gitignore end where a submodule begins, and its own exclude file's too.
set -eu
# Debian 12's, whatever git is installed here.
pinned=git=1:2.39.5-0+deb12u3
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q "$pinned" > apt 2>&1 || { cat apt; exit 1; }; dpkg -x git_*.deb pinned)
export PATH="$folder/pinned/usr/bin:$PATH" GIT_EXEC_PATH="$folder/pinned/usr/lib/git-core" GIT_TEMPLATE_DIR="$folder/pinned/usr/share/git-core/templates"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
echo "$(git --version): no pattern of an outer repository's .gitignore or info/exclude is valid inside of its submodules;"
echo "most would expect that a .gitignore holds for all folders below it, and tools that walk the tree read it so: a submodule's lib/ is lost where the outer one leaves out its own."
git init -q -b main "$folder/inner"; cd "$folder/inner"
echo a > readme; git add .; git commit -qm x
git init -q -b main "$folder/outer"; cd "$folder/outer"
git -c protocol.file.allow=always submodule --quiet add "$folder/inner" inner
printf 'lib/\n*.gen.py\n' > .gitignore; echo '*.tmp' > .git/info/exclude
for at in . inner; do mkdir -p $at/pkg/lib; touch $at/pkg/lib/a.py $at/b.gen.py $at/c.tmp; done
outer="$(git status --short --untracked-files=all | grep -v -e '^A' -e gitignore || true)"
inner="$(git -C inner status --short --untracked-files=all | paste -sd' ')"
echo "untracked outside: ${outer:-nothing but the submodule}; inside: $inner"
[ "$inner" = "?? b.gen.py ?? c.tmp ?? pkg/lib/a.py" ] && [ -z "$(git ls-files --others --exclude-standard | grep -v gitignore)" ]
