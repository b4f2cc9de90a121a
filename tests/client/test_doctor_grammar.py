"""doctor says which grammars nobody compared with another encoder."""

from foretype_client.commands.doctor import _standing  # pyright: ignore[reportPrivateUsage]


def test_an_unproven_grammar_is_told() -> None:
    assert _standing("mellum") == " (unproven)"
    assert _standing("martian-1") == " (unproven)"
    assert _standing("starcoder2") == _standing("foretype-1") == ""
