"""`notebookDocument/*` through the server: cells are asked about, and answers are the cells' own."""

import pytest
from foretype_lsp.suggestions.handlers import SUGGESTION_GREW

NOTEBOOK = "file:///w/a.ipynb"
KNOWS_NOTEBOOKS = {"notebookDocument": {"synchronization": {}}}


def cell_uri(index, notebook=NOTEBOOK):
    return f"{notebook}#c{index}"


@pytest.fixture
def notebook(fresh):
    return lambda *cells, **more: Notebook(fresh, *cells, **more)


class Notebook:
    """One that an editor has open; cells are texts of code, or (kind, language id, text)."""

    def __init__(self, client, *cells, uri=NOTEBOOK):
        self.client, self.uri, self.count = client, uri, 0
        made = [self.made(cell) for cell in cells]
        self.count = len(cells)
        client.notify(
            "notebookDocument/didOpen",
            notebookDocument={
                "uri": uri,
                "notebookType": "jupyter-notebook",
                "version": 1,
                "cells": [cell for cell, _ in made],
            },
            cellTextDocuments=[text for _, text in made],
        )

    def made(self, cell):
        kind, language, text = (2, "python", cell) if isinstance(cell, str) else cell
        uri = cell_uri(self.count, self.uri)
        self.count += 1
        return {"kind": kind, "document": uri}, {"uri": uri, "languageId": language, "version": 1, "text": text}

    def change(self, **cells):
        self.client.notify(
            "notebookDocument/didChange",
            notebookDocument={"uri": self.uri, "version": 2},
            change={"cells": cells},
        )

    def insert(self, index, line, character, text, version=2):
        at = {"line": line, "character": character}
        document = {"uri": cell_uri(index, self.uri), "version": version}
        self.change(
            textContent=[{"document": document, "changes": [{"range": {"start": at, "end": at}, "text": text}]}]
        )

    def ask(self, index, line, character):
        return self.client.ask(line, character, uri=cell_uri(index, self.uri))

    async def asking(self, index, line, character):
        return await self.client.asking(line, character, uri=cell_uri(index, self.uri))


async def test_notebooks_are_taken_from_clients_that_have_them(fresh):
    result = fresh.initialize()
    assert "notebookDocumentSync" not in result["capabilities"]


async def test_all_cells_of_all_notebooks_are_wanted(fresh):
    id = fresh.request("initialize", processId=None, capabilities=KNOWS_NOTEBOOKS)
    capabilities = fresh.answers(id)[0]["result"]["capabilities"]
    assert capabilities["notebookDocumentSync"] == {"notebookSelector": [{"notebook": "*"}]}


async def test_cells_above_come_before_and_cells_below_behind(client, notebook):
    it = notebook("import numpy as np", (1, "markdown", "# Load\nthe data"), "    y = np.", "print(y)")
    id = await it.asking(2, 0, 11)
    snapshot, offset, *_ = client.flow.asked[0]
    assert snapshot.text[:offset] == (
        "# %%\nimport numpy as np\n\n# %% [markdown]\n# # Load\n# the data\n\n# %%\n    y = np."
    )
    assert snapshot.text[offset:] == "\n\n# %%\nprint(y)"
    await client.answering(0, "zeros(3)\n\n# %%\nprint(y)")
    ((item,),) = [answer["result"]["items"] for answer in client.answers(id)]
    assert item["insertText"] == "y = np.zeros(3)"
    assert item["range"] == {"start": {"line": 0, "character": 4}, "end": {"line": 0, "character": 11}}


async def test_positions_are_the_cells_own_behind_an_emoji_and_a_magic(fresh, notebook):
    fresh.initialize(encodings=["utf-16"])
    it = notebook("a = 1", '%time\ns = "😀"; t')
    id = await it.asking(1, 1, 11)
    snapshot, offset, *_ = fresh.flow.asked[0]
    assert snapshot.text[:offset] == '# %%\na = 1\n\n# %%\n#time\ns = "😀"; t'
    await fresh.answering(0, "ail")
    (item,) = fresh.answers(id)[0]["result"]["items"]
    assert item["insertText"] == 's = "😀"; tail'
    assert item["range"]["end"] == {"line": 1, "character": 11}


async def test_a_suggestion_that_is_only_the_next_cell_is_none(client, notebook):
    it = notebook("a = 1\n", "b")
    id = await it.asking(0, 1, 0)
    await client.answering(0, "\n# %%\nb = 2")
    assert client.answers(id)[0]["result"] == {"items": []}


@pytest.mark.parametrize(
    ("cell", "line", "why"),
    [
        ((1, "markdown", "some text"), 0, "a cell of text"),
        ((2, "sql", "SELECT "), 0, "another language"),
        ("%%bash\nls ", 1, "another program"),
        ("x = 1\n!pip ", 1, "only IPython"),
        ("%matplotlib ", 0, "only IPython"),
    ],
)
async def test_what_is_no_code_of_the_notebook_gets_none_and_the_status_says_why(client, notebook, cell, line, why):
    client.server.status.connected("a-model")
    it = notebook("a", "b", cell)
    id = await it.asking(2, line, 3)
    assert client.answers(id)[0]["result"] is None and not client.flow.asked
    status = client.request("foretype/status")
    assert why in client.answers(status)[0]["result"]["detail"]


async def test_what_is_typed_added_moved_and_deleted_is_in_the_next_question(client, notebook):
    it = notebook("a = 1", "b = 2")
    it.insert(0, 0, 5, "0")
    cell, text = it.made("c = ")
    it.change(structure={"array": {"start": 1, "deleteCount": 0, "cells": [cell]}, "didOpen": [text]})
    it.change(
        structure={
            "array": {"start": 0, "deleteCount": 3, "cells": [{"kind": 2, "document": cell_uri(i)} for i in (2, 1, 0)]}
        }
    )
    it.change(data=[{"kind": 2, "document": cell_uri(0), "executionSummary": {"executionOrder": 1}}])
    await it.asking(2, 0, 4)
    assert client.flow.asked[0][0].text == "# %%\nc = \n\n# %%\nb = 2\n\n# %%\na = 10"
    gone = {"array": {"start": 1, "deleteCount": 2}, "didClose": [{"uri": cell_uri(1)}, {"uri": cell_uri(0)}]}
    it.change(structure=gone)
    await it.asking(2, 0, 4)
    assert client.flow.asked[1][0].text == "# %%\nc = "
    none = await it.asking(0, 0, 1)
    assert client.answers(none)[0]["result"] is None


async def test_a_change_of_another_cell_makes_an_answer_void(client, notebook):
    it = notebook("a = 1", "b = ")
    id = await it.asking(1, 0, 4)
    it.insert(0, 0, 5, "0")
    await client.answering(0, "a")
    assert client.answers(id)[0]["result"] is None


async def test_a_question_in_another_notebook_supersedes_nothing(client, settled, notebook):
    one, other = notebook("a = "), notebook("b = ", uri="file:///w/b.ipynb")
    first, second = one.ask(0, 0, 4), other.ask(0, 0, 4)
    await settled()
    client.flow.answer(0, "1")
    await client.answering(1, "2")
    texts = [client.answers(id)[0]["result"]["items"][0]["insertText"] for id in (first, second)]
    assert texts == ["a = 1", "b = 2"]


async def test_a_question_for_another_version_of_the_cell_is_null(client, settled, notebook):
    it = notebook("a", "b")
    it.insert(1, 0, 1, "x", version=5)
    document = {"uri": cell_uri(1), "version": 4}
    asked = {"textDocument": document, "position": {"line": 0, "character": 2}, "context": {"triggerKind": 2}}
    stale = client.request("textDocument/inlineCompletion", **asked)
    current = client.request("textDocument/inlineCompletion", **asked | {"textDocument": {**document, "version": 5}})
    await settled()
    await client.answering(0, "y")
    assert client.answers(stale)[0]["result"] is None
    assert client.answers(current)[0]["result"]["items"][0]["insertText"] == "bxy"


async def test_growth_is_told_of_the_cell_that_was_asked_about(fresh, notebook):
    fresh.initialize(options={"suggestionGrew": True})
    it = notebook("a = ", "b = ")
    await it.asking(1, 0, 4)
    await fresh.answering(0, "c")
    fresh.server.suggestions.grew(fresh.flow.asked[0][0].uri, "s0")
    (told,) = fresh.notifications(SUGGESTION_GREW)
    assert told == {"textDocument": {"uri": cell_uri(1)}, "id": "s0"}


async def test_the_flow_hears_of_the_notebook_as_of_one_document(fresh, notebook):
    fresh.initialize(options={"askEarly": True})
    it = notebook("a = ", "b = ")
    it.insert(1, 0, 4, "c")
    end = len("# %%\na = \n\n# %%\nb = c")
    fresh.notify("foretype/cursorRested", textDocument={"uri": cell_uri(1)}, position={"line": 0, "character": 0})
    fresh.notify("notebookDocument/didClose", notebookDocument={"uri": NOTEBOOK}, cellTextDocuments=[])
    text = "# %%\na = \n\n# %%\nb = c"
    assert fresh.flow.told == [
        ("opened", "# %%\na = \n\n# %%\nb = "),
        ("changed", text),
        ("typed", end),
        ("rested", text, end - len("b = c")),
        ("closed", f"{NOTEBOOK}#cells"),
    ]
    assert fresh.server.documents.find(cell_uri(0)) is None and len(fresh.server.documents) == 0


async def test_a_flow_that_comes_late_learns_of_the_notebook(client, notebook):
    client.server.documents.follow(None)
    notebook("a", "b")
    client.server.documents.follow(client.flow)
    assert client.flow.told == [("opened", "# %%\na\n\n# %%\nb")]


async def test_a_change_that_cannot_be_read_loses_the_notebook_until_it_is_opened_again(client, notebook):
    it = notebook("a = ")
    it.change(textContent=[{"document": {"uri": cell_uri(0)}, "changes": "no list"}])
    id = await it.asking(0, 0, 4)
    assert client.answers(id)[0]["result"] is None and not client.flow.asked
    it = notebook("a = ")
    await it.asking(0, 0, 4)
    assert len(client.flow.asked) == 1


async def test_saving_and_what_nobody_has_open_do_nothing(client, notebook):
    client.notify("notebookDocument/didSave", notebookDocument={"uri": NOTEBOOK})
    client.notify("notebookDocument/didClose", notebookDocument={"uri": NOTEBOOK}, cellTextDocuments=[])
    client.notify(
        "notebookDocument/didChange", notebookDocument={"uri": NOTEBOOK, "version": 2}, change={"metadata": {"a": 1}}
    )
    assert client.flow.told == []


async def test_the_language_of_a_notebook_can_be_switched_off(fresh, notebook):
    fresh.initialize(options={"enable": {"python": False}})
    it = notebook("a = ")
    id = await it.asking(0, 0, 4)
    assert fresh.answers(id)[0]["result"] is None and not fresh.flow.told


async def test_commands_for_whole_files_say_that_a_cell_is_none(client, notebook):
    notebook("def f():\n    return 1")
    why = client.server.documents.usable(cell_uri(0))
    assert why == "commands know whole files, not cells of a notebook"


KEY = "K = '''-----BEGIN PRIVATE KEY-----\nabc\n'''\n"


async def test_a_key_that_is_pasted_into_a_cell_closes_the_notebook_and_taken_out_opens_it(client, notebook):
    it = notebook("a = 1\n", "b = ")
    it.insert(0, 1, 0, KEY)
    assert [what for what, *_ in client.flow.told] == ["opened", "closed", "excluded"]
    await it.asking(1, 0, 4)
    assert client.server.documents.find(cell_uri(1)).excluded == "holds a private key"
    assert not client.flow.asked and "PRIVATE" not in "".join(str(one) for one in client.flow.told)
    gone = {"start": {"line": 1, "character": 0}, "end": {"line": 4, "character": 0}}
    it.change(textContent=[{"document": {"uri": cell_uri(0)}, "changes": [{"range": gone, "text": ""}]}])
    assert [what for what, *_ in client.flow.told][-1] == "opened"
    await it.asking(1, 0, 4)
    assert len(client.flow.asked) == 1


async def test_a_key_in_a_cell_that_is_put_in_closes_the_notebook(client, notebook):
    it = notebook("a = ")
    cell, text = it.made((1, "markdown", "-----BEGIN PRIVATE KEY-----\nabc"))
    it.change(structure={"array": {"start": 1, "deleteCount": 0, "cells": [cell]}, "didOpen": [text]})
    await it.asking(0, 0, 4)
    assert not client.flow.asked and "PRIVATE" not in "".join(str(one) for one in client.flow.told)
