"""lsprotocol's classes, made when they are first used: they are what they are where they are made at once."""

import json
import subprocess
import sys

SCRIPT = """
import json, sys
if {lazily}:
    from foretype_lsp.transport.protocol_types import import_types
    import_types()
import attrs
from lsprotocol import types
from pygls.protocol import default_converter
converter = default_converter()
made = sum("__attrs_attrs__" in vars(it) and isinstance(vars(it)["__attrs_attrs__"], tuple) for it in types.ALL_TYPES_MAP.values() if isinstance(it, type))
asked = {{"processId": 1, "rootUri": None, "capabilities": {{"textDocument": {{"inlineCompletion": {{}}, "synchronization": {{"didSave": True}}}},
    "general": {{"positionEncodings": ["utf-8", "utf-16"]}}}}, "workspaceFolders": [{{"uri": "file:///a", "name": "a"}}]}}
params = converter.structure(asked, types.InitializeParams)
at = types.Position(1, 2)
wrong = []
for value in (lambda: types.Position(1, "x"), lambda: types.Position(), lambda: setattr(at, "line", "x")):
    try:
        value()
    except (TypeError, ValueError) as error:
        wrong.append(type(error).__name__)
print(json.dumps({{
    "params": converter.unstructure(params),
    "folder": repr(params.workspace_folders),
    "order": [at == types.Position(1, 2), at < types.Position(1, 3), at != types.Position(2, 2), str(at)],
    "wrong": wrong,
    "fields": [[it.name, str(it.type)] for it in attrs.fields(types.InlineCompletionParams)],
    "all": {{name: [it.name for it in attrs.fields(kind)] for name, kind in sorted(types.ALL_TYPES_MAP.items()) if isinstance(kind, type) and attrs.has(kind)}},
    "made": made,
}}))
"""


def said(*, lazily: bool) -> dict[str, object]:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(lazily=lazily)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_they_read_and_write_and_compare_and_refuse_alike_and_few_are_made_before() -> None:
    lazy, eager = said(lazily=True), said(lazily=False)
    few, all_of_them = lazy.pop("made"), eager.pop("made")
    assert lazy == eager
    assert isinstance(few, int) and isinstance(all_of_them, int)
    assert few < 20 and all_of_them > 500


def test_the_language_server_starts_with_few_of_them() -> None:
    script = """
import asyncio, os, sys
from foretype_lsp.cli import main
def begun(work):
    from lsprotocol import types
    made = sum(isinstance(vars(it).get("__attrs_attrs__"), tuple) for it in types.ALL_TYPES_MAP.values() if isinstance(it, type))
    os.write(2, b"%d %d" % (made, "numpy" in sys.modules))
    os._exit(0)
asyncio.run = begun
main()
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    made, numpy = ran.stderr.splitlines()[-1].split()
    assert int(made) < 60 and numpy == "0", ran.stderr
