#!/bin/sh
# git: two stars behind letters lead over folders where a slash follows them, which its page denies, and pathspec does as the page says.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install pathspec==0.12.1
git init -q "$folder/work"
printf 'build**/*.o\n' > "$folder/work/.gitignore"
cat > "$folder/ask.py" <<'PY'
import subprocess
import sys
from importlib.metadata import version
import pathspec

git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.strip()
print(f"{git}, pathspec {version('pathspec')}: the pattern build**/*.o of a .gitignore leads over folders in git;")
print("gitignore(5) says that stars beside other letters are ordinary ones, which stop at a slash, and most would expect that.")
paths = ["build/a.o", "build-x/a.o", "build/x/a.o", "build-x/y/z/a.o", "other/a.o"]
asked = subprocess.run(["git", "check-ignore", "--no-index", *paths], cwd=sys.argv[1], capture_output=True, text=True)
theirs = asked.stdout.split()
ours = list(pathspec.PathSpec.from_lines("gitwildmatch", ["build**/*.o"]).match_files(paths))
print("git ignores:     ", ", ".join(theirs))
print("pathspec ignores:", ", ".join(sorted(ours)))
assert theirs == paths[:4] and sorted(ours) == sorted(paths[:2]), (theirs, ours)
PY
"$folder/env/bin/python" "$folder/ask.py" "$folder/work"
