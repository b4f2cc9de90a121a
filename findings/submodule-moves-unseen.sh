#!/bin/sh
# git: what `git submodule update` puts in place leaves no trace in the outer repository's HEAD, index and log.
set -eu
# Debian 12's, whatever git is installed here.
pinned=git=1:2.39.5-0+deb12u3
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
(cd "$folder" && apt-get download -q "$pinned" > apt 2>&1 || { cat apt; exit 1; }; dpkg -x git_*.deb pinned)
export PATH="$folder/pinned/usr/bin:$PATH" GIT_EXEC_PATH="$folder/pinned/usr/lib/git-core" GIT_TEMPLATE_DIR="$folder/pinned/usr/share/git-core/templates"
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=x GIT_AUTHOR_EMAIL=x GIT_COMMITTER_NAME=x GIT_COMMITTER_EMAIL=x
echo "$(git --version): git submodule update changes the submodule's files, and not a byte of the outer repository's HEAD, index and logs/HEAD;"
echo "most would expect that whoever follows these three (an index of the files, a prompt in the shell) sees it, as with every other command that puts files in place."
git init -q -b main "$folder/inner"; cd "$folder/inner"
for text in one two; do echo "$text" > a; git add a; git commit -qm "$text"; done
git init -q -b main "$folder/outer"; cd "$folder/outer"
git -c protocol.file.allow=always submodule --quiet add "$folder/inner" inner; git commit -qm two
git -C inner checkout -q HEAD~1; git commit -qam one
git checkout -q HEAD~1
state() { cat .git/HEAD .git/index .git/logs/HEAD | sha1sum | cut -c1-12; stat -c %Y.%y .git/HEAD .git/index .git/logs/HEAD | sha1sum | cut -c1-12; }
before="$(state | paste -sd' ')"; had="$(cat inner/a)"
sleep 0.1; git submodule --quiet update
after="$(state | paste -sd' ')"; has="$(cat inner/a)"
echo "inner/a before: $had, after: $has; content and times of the three before: $before, after: $after"
echo "changed instead: $(cd .git/modules/inner; find HEAD index logs/HEAD -newer ../../index | paste -sd' ') of .git/modules/inner"
[ "$had" = one ] && [ "$has" = two ] && [ "$before" = "$after" ]
