#!/bin/sh
# tree-sitter-python: what only Python 2 takes is no error.
set -eu
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" -q --disable-pip-version-check install tree-sitter==0.26.1 tree-sitter-python==0.25.0
cat > "$folder/ask.py" <<'PY'
import sys
from importlib.metadata import version
import tree_sitter_python
from tree_sitter import Language, Parser

print(f"tree-sitter-python {version('tree-sitter-python')}: the grammar is of Python 2 and 3 at once, so nothing of Python 2 has an error in its tree;")
print(f"most would expect that a text without an error in the tree is Python: of a model's lines a third language slips through. Beside it Python {sys.version.split()[0]}'s own answer:")
texts = ['print "x"', 'exec "x"', 'raise E, "m"', "x = 0777", "x = 10L", "x = `y`", 'x = ur"a"', "a <> b", "def f((a, b)): pass", "lambda (a, b): a"]
parser = Parser(Language(tree_sitter_python.language()))
clean = []
for text in texts:
    clean.append(not parser.parse(f"{text}\n".encode()).root_node.has_error)
    try:
        compile(text, "a.py", "exec")
        said = "taken"
    except SyntaxError as error:
        said = error.msg
    print(f"{text:22} {'no error' if clean[-1] else 'an error':10} {said}")
    assert said != "taken"
assert all(clean)
PY
"$folder/env/bin/python" -W ignore "$folder/ask.py"
