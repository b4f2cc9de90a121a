"""What an editor's word on trust means for what is read."""

from pathlib import Path

from foretype_lsp.options import parse
from foretype_lsp.trust import trusted_roots, why_unread

ROOTS = [Path("/a"), Path("/b")]


def test_of_folders_that_are_not_trusted_nothing_is_read_whatever_else_is_said():
    for said in (False, "yes", 1):
        options, _ = parse({"trusted": said, "index": {"enable": True}})
        assert "not trusted" in (why_unread(options) or "")
        assert trusted_roots(options, ROOTS) == []


def test_trusted_folders_are_read_unless_the_index_is_off():
    options, _ = parse({"trusted": True})
    assert why_unread(options) is None and trusted_roots(options, ROOTS) == ROOTS
    options, _ = parse({"trusted": True, "index": False})
    assert why_unread(options) == "switched off" and trusted_roots(options, ROOTS) == ROOTS
