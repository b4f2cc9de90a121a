"""Fetches the vocabularies of vocabularies.toml into a folder and checks their digests; says where to get those that do not come.

python requirements/vocabularies.py FOLDER
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("vocabularies.toml")
TIMEOUT_S = 60.0


def wrong(path: Path, entry: dict[str, Any]) -> str:
    """What is wrong with a file; empty where it is the one that is meant."""
    if not path.is_file():
        return "is not there"
    return "" if hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"] else "is another file"


def fetch(path: Path, entry: dict[str, Any]) -> str:
    """Downloads a file; returns what went wrong, or nothing."""
    url = f"https://raw.githubusercontent.com/{entry['repository']}/{entry['commit']}/{entry['path']}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            data = response.read(entry["bytes"] + 1)
    except OSError as error:
        return f"{url}: {error}"
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        return f"{url}: another file than was checked"
    part = path.with_suffix(path.suffix + ".part")
    part.write_bytes(data)
    part.replace(path)
    return ""


def main(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    missing = 0
    for vocabulary in tomllib.loads(TABLE.read_text("utf-8"))["vocabulary"]:
        for entry in vocabulary["file"]:
            path = folder / entry["name"]
            if not wrong(path, entry):
                sys.stdout.write(f"ok       {entry['name']}\n")
            elif problem := fetch(path, entry):
                missing += 1
                place = f"{entry['path']} of github.com/{entry['repository']} at {entry['commit'][:12]}"
                sys.stdout.write(
                    f"missing  {entry['name']} ({vocabulary['of']}): {problem}\n         put {place} there by hand\n"
                )
            else:
                sys.stdout.write(f"fetched  {entry['name']}\n")
    sys.stdout.write(f"\nFORETYPE_VOCABULARIES={folder.resolve()} pytest tests/models/test_vocabularies.py\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
