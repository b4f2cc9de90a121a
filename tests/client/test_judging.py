"""What of a generated text is worth showing."""

import pytest
from client.typing_desk import profile
from foretype_client.feedback.feedback import Feedback
from foretype_client.flow.judgement import Candidate, judge
from foretype_client.flow.question import Question
from foretype_client.flow.suggestion import Origin, Outcome, Suggestion
from foretype_client.flow.type_through import Place
from foretype_client.policy.trigger import Trigger
from foretype_context.finish.post_processing import finish
from foretype_context.prompt.profile import MinMeanLogprob
from foretype_context.syntax.blocks import SuggestionKind
from foretype_context.text.document import Document

TEXT = "f g(x):\n    return x\n"


@pytest.mark.parametrize(
    ("logprob", "shown"),
    [(-0.2, "f g(x):\n    return x"), (-0.8, "f g(x):"), (-1.5, None), (None, "f g(x):\n    return x")],
)
def test_a_block_that_is_not_sure_enough_leaves_the_line_that_opened_it(
    logprob: float | None, shown: str | None
) -> None:
    snapshot = Document("file:///a.py", "de\n", path="a.py").snapshot()
    least = MinMeanLogprob(line=-1.0, block=-0.5)
    question = Question(
        snapshot=snapshot,
        offset=2,
        place=Place.of(snapshot, 2, None),
        trigger=Trigger.AUTOMATIC,
        selected=None,
        profile=profile(min_mean_logprob=least),
        asked_s=0.0,
        least=least,
    )
    candidate = Candidate(
        id="1", text=TEXT, kind=SuggestionKind.OPENED, final=True, source=Origin.NETWORK, logprob=logprob
    )
    judged = judge(candidate, question, finish, Feedback(), 0.0)
    if shown is None:
        assert judged is Outcome.LOW_CONFIDENCE
    else:
        assert isinstance(judged, Suggestion)
        assert judged.text == shown
