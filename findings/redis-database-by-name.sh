#!/bin/sh
# redis (Python): a URL whose database is no number means database 0, and the slashes of a path are thrown away.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install redis==8.1.0
cat > "$folder/ask.py" <<'PY'
import redis

print(f"redis {redis.__version__}: of redis://host/NAME the name is dropped without a word, and database 0 is used; /1/2 is database 12;")
print("most would expect an error, as a wrong port or ?db=NAME gives: two users who name their databases share one, and see each other's keys.")
paths = ["/3", "/budgets", "/3x", "/1/2", "/-1", "?db=budgets", ":port/0"]
found = {}
for path in paths:
    try:
        found[path] = redis.ConnectionPool.from_url(f"redis://host{path}").connection_kwargs.get("db", "none, so 0")
    except ValueError as error:
        found[path] = type(error).__name__
    print(f"redis://host{path:12} {found[path]}")
assert list(found.values()) == [3, "none, so 0", "none, so 0", 12, -1, "ValueError", "ValueError"]
PY
"$folder/env/bin/python" "$folder/ask.py"
