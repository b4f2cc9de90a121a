#!/bin/sh
# podman-compose: variables are not filled in in what is tagged !override.
set -eu
command -v podman > /dev/null || { echo "needs podman of Debian, which podman-compose asks for its version: nothing was asked"; exit 0; }
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install podman-compose==1.6.0
echo "podman-compose 1.6.0: in a list tagged !override \${PORT:-9000} stays as it is written; in the same list without the tag it is filled in;"
echo "most would expect that a tag which says how files are merged leaves variables as they are elsewhere, as in Docker Compose: podman is given a port of that name."
cd "$folder"
printf 'services:\n  web:\n    image: "x:${TAG:-one}"\n    ports: ["8000:80"]\n' > compose.yaml
printf 'services:\n  web:\n    ports: !override\n      - "${PORT:-9000}:80"\n' > tagged.yaml
printf 'services:\n  web:\n    ports:\n      - "${PORT:-9000}:80"\n' > plain.yaml
ports() { PORT=7000 "$folder/env/bin/podman-compose" -f compose.yaml -f "$1" config 2> /dev/null | grep -e '^ *- ' | tr -d ' ' | paste -sd' '; }
tagged="$(ports tagged.yaml)"; plain="$(ports plain.yaml)"
echo "with PORT=7000, tagged: $tagged; plain: $plain"
[ "$tagged" = '-${PORT:-9000}:80' ] && [ "$plain" = "-8000:80 -7000:80" ]
