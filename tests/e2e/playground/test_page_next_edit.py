"""The next edit in the playground: twelve behaviours in a real browser, with the real gateway's rules.

The engine answers nothing while a page is looked at, so that no suggestion at the cursor comes in between, but where a test wants one.
"""

import json

import pytest
from e2e.lsp_support import gateway
from e2e.playground.page_support import MISSING

pytestmark = [pytest.mark.skipif(MISSING is not None, reason=str(MISSING)), pytest.mark.timeout(300)]

NEAR = "def area(width, height):\n    size = width * height\n    print(width)\n    return size\n"
"""Rename `width` in the first line: the next edit is on the second, and one more below it."""
ROWS = 60
FAR = "def total(values):\n" + "".join(f"    step_{i} = {i}\n" for i in range(ROWS)) + "    return values\n"
RENAMED, FIRST, ALL = (NEAR.replace("width", "breadth", count) for count in (1, 2, 3))
SHOWN = "document.querySelectorAll('.next-old, .next-new, .next-way').length > 0"
WAY = "(document.querySelector('.next-way')?.textContent ?? '')"
ASKED = "window.asked"
LONG = "new Promise((done) => setTimeout(done, 1500))"
"""Longer than anything waits."""
COUNTED = """
  window.asked = 0; window.answered = 0;
  const real = window.fetch;
  window.fetch = async (url, options) => {
    const mine = String(url).endsWith('/next_edit');
    window.asked += mine;
    const answer = await real(url, options);
    window.answered += mine;
    return answer;
  };
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with gateway(tmp_path_factory.mktemp("gateway"), prefill_s=10.0) as running:
        yield f"http://127.0.0.1:{running.port}/playground"


class Editor:
    """The page, with the cursor where a name is to be typed."""

    def __init__(self, page, url):
        self.page, self.url = page, url
        self.press, self.until, self.evaluate = page.press, page.until, page.evaluate

    def open(self, text, line, word):
        """A page of its own that holds this text; the cursor behind a word of a line, which is from 0."""
        self.page.do("open", url=self.url)
        self.until("document.querySelector('.cm-content') !== null && document.getElementById('eagerness') !== null")
        self.evaluate(COUNTED)
        self.evaluate(
            "(() => { const it = document.getElementById('eagerness');"
            " if (it.value === 'low') { it.value = 'medium'; it.dispatchEvent(new Event('change')); } })()"
        )
        self.press("Control+a")
        self.evaluate(
            "(() => { const data = new DataTransfer(); data.setData('text/plain', " + json.dumps(text) + ");"
            " document.querySelector('.cm-content').dispatchEvent("
            "   new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true})); })()"
        )
        self.press("Control+Home", *["ArrowDown"] * line)
        self.go(text.split("\n")[line], word, behind=True)

    def go(self, line, word, *, behind=False):
        """To a word of the cursor's line; Home is behind its indentation."""
        column = line.index(word) + behind * len(word) - (len(line) - len(line.lstrip()))
        self.press("Home", *["ArrowRight" if column > 0 else "ArrowLeft"] * abs(column))

    def rename(self, text, line, old, new):
        self.open(text, line, old)
        self.press(*["Backspace"] * len(old))
        self.page.do("type", text=new)

    def seen(self):
        self.until(SHOWN)

    def offered(self):
        """A page whose first name was changed, and the next edit of it."""
        self.rename(NEAR, 0, "width", "breadth")
        self.seen()

    def quiet(self):
        """Until the question that the last thing led to is answered, with nothing on the screen."""
        answered = self.evaluate("window.answered")
        self.until(f"window.asked > 0 && window.answered === {ASKED} && window.answered > {answered - 1}")
        self.until(f"!({SHOWN})")

    def text(self):
        return self.page.text()

    def pieces(self):
        return [
            self.evaluate(f"[...document.querySelectorAll('.{name}')].map((one) => one.textContent).join('|')")
            for name in ("next-old", "next-new")
        ]

    def at(self):
        """The line and column of the cursor, from 0."""
        return self.evaluate(
            "(() => { const {anchorNode, anchorOffset} = getSelection(); const node = anchorNode.nodeType === 3 ?"
            " anchorNode.parentNode : anchorNode; const line = node.closest('.cm-line'); const all = document.createRange();"
            " all.setStart(line, 0); all.setEnd(anchorNode, anchorOffset);"
            " const copy = all.cloneContents(); copy.querySelectorAll('.next-new, .next-way').forEach((one) => one.remove());"
            " return [line.textContent, copy.textContent.length]; })()"
        )


@pytest.fixture
def editor(page, served):
    yield Editor(page, served)
    assert page.do("complaints") == []


def test_next_edit_01_tab_puts_nothing_in_and_leaves_the_editor_where_nothing_is_shown(editor):
    editor.open(NEAR, 1, "  ")
    editor.press("Tab")
    assert editor.text() == NEAR
    assert editor.evaluate("document.activeElement.closest('#editor')") is None


def test_next_edit_02_one_escape_ends_it_and_the_next_tab_is_a_tab(editor):
    editor.offered()
    editor.press("Escape")
    assert not editor.evaluate(SHOWN)
    editor.press("Tab")
    assert editor.text() == RENAMED
    assert editor.evaluate("document.activeElement.closest('#editor')") is None


def test_next_edit_03_nothing_moves_without_a_key_and_the_first_tab_jumps_and_the_second_applies(editor):
    editor.rename(FAR, 0, "values", "everything")
    before = editor.at(), editor.evaluate("document.querySelector('.cm-scroller').scrollTop")
    editor.evaluate("window.movers = []")
    editor.seen()
    assert (editor.at()[1], editor.evaluate("document.querySelector('.cm-scroller').scrollTop")) == (
        before[0][1],
        before[1],
    )
    assert editor.evaluate("window.movers") == []
    assert editor.evaluate(WAY) == f"→ next edit: line {ROWS + 2} ↓ (Tab)"
    editor.press("Tab")
    editor.until("[...document.querySelectorAll('.next-old')].map((one) => one.textContent).join()", "values")
    assert editor.pieces() == ["values", "everything"]
    editor.until(f"document.querySelector('.cm-scroller').scrollTop > {before[1]}")  # a frame later
    assert editor.at() == ["    return valueseverything", len("    return ")]
    editor.press("Tab")
    editor.until("document.querySelector('.cm-content').textContent.includes('return everything')")
    assert editor.evaluate(SHOWN) is False


def test_next_edit_03_what_is_above_says_so(editor):
    text = "def f(a):\n    return g(a)\n\n\n" + "# line\n" * 6 + "def g(b):\n    return b\n"
    editor.rename(text, 10, "g", "gain")
    editor.seen()
    assert editor.evaluate(WAY) == "→ next edit: line 2 ↑ (Tab)"


def test_next_edit_04_nothing_is_offered_after_an_undo(editor):
    editor.offered()
    while editor.text() != NEAR:
        editor.press("Control+z")
    editor.quiet()


def test_next_edit_05_another_change_drops_it_and_one_undo_takes_it_back(editor):
    editor.offered()
    editor.press("Tab", "x", "Control+z")  # what is typed behind it at once is another step
    assert editor.text() == FIRST
    editor.press("Control+z")
    assert editor.text() == RENAMED
    editor.quiet()
    editor.offered()
    editor.press("Control+End", "#")
    assert not editor.evaluate(SHOWN)


def test_next_edit_06_typing_along_shrinks_it(editor):
    editor.offered()
    editor.press("ArrowDown")
    editor.go("    size = width * height", "width")
    asked = editor.evaluate(ASKED)
    editor.page.do("type", text="bre")
    assert editor.pieces() == ["width", "adth"]
    editor.press("Tab")
    assert editor.text() == FIRST
    assert editor.evaluate(ASKED) >= asked
    editor.seen()
    editor.press("x")
    assert not editor.evaluate(SHOWN)


@pytest.mark.parametrize("text", [NEAR, "# 🦊 🦊\n" + NEAR, NEAR.replace("    ", "\t"), NEAR.rstrip() + "  # width"])
def test_next_edit_07_what_is_drawn_is_what_is_applied(editor, text):
    line = text.split("\n").index("def area(width, height):")
    editor.rename(text, line, "width", "breadth")
    for _ in range(2):
        editor.seen()
        promised = editor.evaluate(
            "[...document.querySelectorAll('.cm-line')].map((line) => { const copy = line.cloneNode(true);"
            " copy.querySelectorAll('.next-old, .next-way').forEach((one) => one.remove()); return copy.textContent; }).join('\\n')"
        )
        editor.press("Tab")
        assert editor.text() == promised
    assert editor.text() == text.replace("(width", "(breadth").replace("= width", "= breadth")


def test_next_edit_08_what_was_refused_stays_refused_even_after_a_click(editor):
    editor.offered()
    editor.press("Escape")
    asked = editor.evaluate(ASKED)
    editor.press("ArrowDown", "ArrowDown", "ArrowUp")
    editor.page.do("click", selector=".cm-line:nth-child(2)")
    editor.press(
        "Control+End", "#"
    )  # what is typed asks again: there is silence for a while, and what it says is waited for
    editor.until(f"{ASKED} > {asked}")
    editor.until(f"window.answered === {ASKED}")
    assert not editor.evaluate(SHOWN)


def test_next_edit_09_a_suggestion_at_the_cursor_and_a_selection_come_first(editor, page, tmp_path):
    editor.offered()
    editor.press("Shift+ArrowLeft")
    assert not editor.evaluate(SHOWN)
    editor.press("ArrowRight")
    assert editor.evaluate(SHOWN)
    with gateway(tmp_path, decode_s=0.002) as talking:
        other = Editor(page, f"http://127.0.0.1:{talking.port}/playground")
        other.rename(NEAR, 0, "width", "breadth")
        other.until("document.querySelector('.ghost')?.textContent.length > 0")
        other.evaluate(LONG)
        assert not other.evaluate(SHOWN)
        other.press("Escape")  # the suggestion alone
        other.seen()
        assert other.evaluate("document.querySelector('.ghost')") is None


def test_next_edit_10_the_keyboard_reaches_all_of_it_and_it_is_said_in_words(editor):
    editor.offered()
    editor.until("document.getElementById('said').textContent", "Next edit, line 2: width becomes breadth")
    assert editor.page.do("axe")["violations"] == []
    editor.press("Escape", "Tab")
    assert editor.evaluate("document.activeElement.id") == "eagerness"


def test_next_edit_11_a_chain_leaves_what_the_rename_would_and_nothing_else(editor):
    editor.rename(NEAR, 0, "width", "breadth")
    for wanted in (FIRST, ALL):
        editor.seen()
        editor.press("Tab")
        assert editor.text() == wanted
    editor.quiet()
    assert editor.text() == ALL


def test_next_edit_12_off_means_off_and_the_level_is_kept(editor):
    editor.offered()
    assert editor.evaluate("document.getElementById('eagerness').value") == "medium"
    choose = "(() => {{ const it = document.getElementById('eagerness'); it.value = '{}'; it.dispatchEvent(new Event('change')); }})()"
    editor.evaluate(choose.format("off"))
    assert not editor.evaluate(SHOWN)
    asked = editor.evaluate(ASKED)
    editor.press("Control+End", "#", "Backspace", "ArrowUp")
    editor.evaluate(LONG)
    assert editor.evaluate(ASKED) == asked
    assert editor.evaluate("localStorage.getItem('foretype.next')") == "off"
    editor.evaluate(choose.format("medium"))
    editor.until(SHOWN)
