"""What a model is asked of a document, and what of its answer is taken."""

from foretype_context.edit_models.question import EditWindow, WindowEdit
from foretype_context.edits.followed import Followed
from foretype_context.edits.model_question import ModelQuestion, ModelQuestions
from foretype_context.syntax.document import Edit

TEXT = "limit = 1\nleast = 2\n" + "\n" * 30 + "far = 3\n"
WANTED = EditWindow(lines_above=2, lines_below=3)


def asked(questions: ModelQuestions, cursor: int = 9) -> tuple[str, ModelQuestion | None]:
    """After `limit = 1` became `limit = 10`."""
    document = Followed("python", TEXT)
    document.recent()
    document.changed((Edit(9, 9, "0"),), 1.0)
    edits, last = document.recent()
    return document.text, questions.ask(document.text, cursor, WANTED, "a.py", edits, last)


def test_the_question_is_a_window_with_what_was_done_and_the_edit_is_one_of_the_text() -> None:
    questions = ModelQuestions()
    text, found = asked(questions, TEXT.index("far"))
    assert found is not None and found.start > 0 and found.question.window == text[found.start :]
    text, found = asked(questions)
    assert found is not None and found.question.window == "limit = 10\nleast = 2\n\n\n"
    assert found.question.before == "limit = 1\nleast = 2\n\n\n"
    assert [one.path for one in found.question.edits] == ["a.py"]
    at = text.index("2") + 1
    assert questions.take(text, found, WindowEdit(start=at, end=at, text="0")) == Edit(at, at, "0")


def test_nothing_is_asked_where_nothing_was_done() -> None:
    assert ModelQuestions().ask(TEXT, 0, WANTED, "a.py", [], None) is None


def test_what_was_refused_changes_nothing_or_takes_back_is_not_taken() -> None:
    questions = ModelQuestions()
    text, found = asked(questions)
    assert found is not None
    at = text.index("2") + 1
    said = WindowEdit(start=at, end=at, text="0")
    edit = questions.take(text, found, said)
    assert edit is not None
    questions.refused(text, edit)
    assert questions.take(text, found, said) is None
    assert questions.take(text, found, WindowEdit(start=0, end=5, text="limit")) is None
    assert questions.take(text, found, WindowEdit(start=9, end=10, text="")) is None
