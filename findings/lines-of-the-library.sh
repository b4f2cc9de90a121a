#!/bin/sh
# pygls: its documents split lines at characters that are no line ends for an editor.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install pygls==2.1.1 lsprotocol==2025.0.0
cat > "$folder/ask.py" <<'PY'
from importlib.metadata import version
from lsprotocol import types
from pygls.workspace import TextDocument

print(f"pygls {version('pygls')}: a document has one line more for each form feed, file separator or U+2028 in it, and a change is put in that many lines too high;")
print("most would expect the protocol's three line ends in a library of the protocol: from the first form feed on (old C and Emacs Lisp have one per page) the server's text is not the editor's.")

def changed(between):
    document = TextDocument("file:///a.c", f"int a;{between}int b;\nint c;\n", version=1)
    place = types.Range(types.Position(1, 4), types.Position(1, 5))
    document.apply_change(types.TextDocumentContentChangePartial(range=place, text="d"))
    return document.source

found = {name: changed(sign) for name, sign in {"a blank": " ", "a form feed": "\f", "a file separator": "\x1c", "U+2028": "\u2028"}.items()}
for name, text in found.items():
    print(f"second line's c is written over by d, behind {name:17}: {text!r}")
assert found["a blank"] == "int a; int b;\nint d;\n"
assert all("int c;" in text and "int d;" in text and "int b;" not in text for name, text in found.items() if name != "a blank")
PY
"$folder/env/bin/python" "$folder/ask.py"
