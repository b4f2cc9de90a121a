import pytest
from foretype_context.finish.foreign_text import foreign_text, secret_in

KEY = "AKIA" + "ABCDEFGHIJKLMNOP"
TOKEN = "ghp_" + "a1" * 18


@pytest.mark.parametrize(
    ("typed", "text", "kind"),
    [
        ("# Author: ", "Jane Roe <jane.roe@corp.example.com>", "an address"),
        ("# mail ann", "@mail.example.org if it fails", "an address"),
        ("KEY = ", f'"{KEY}"', "a key"),
        ("token = 'ghp_", f"{TOKEN[4:]}'", "a key"),
        ("", "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a key"),
        ("# ", "Copyright (c) 2012 Somebody", "a licence"),
        ("# Copyright 20", "19 Somebody else", "a licence"),
        (" * ", "SPDX-License-Identifier: GPL-2.0", "a licence"),
        ("# ", "Licensed under the Apache License, Version 2.0", "a licence"),
        ("", "Permission is hereby granted, free of charge,", "a licence"),
    ],
)
def test_what_no_file_of_the_user_holds_is_named(typed: str, text: str, kind: str) -> None:
    assert foreign_text(typed, text, "import os\n" + typed) == kind
    whole = typed + text
    assert foreign_text(typed, text, f"import os\n{whole}\n{typed}") is None, "the user's own text may be said again"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("@", "pytest.fixture"),
        ("y = x@", "self.weight.T"),
        ("y = ", "x@w.io(1)"),
        ("def copyright", "(self):"),
        ("licence = ", "load_licence(path)"),
        ("sk", "-learn"),
        ("import ", "os"),
        ("# jane.roe@corp.example.com ", "wrote this"),
        ("key = ", "settings.AKIA"),
    ],
)
def test_code_is_nothing_foreign(typed: str, text: str) -> None:
    assert foreign_text(typed, text, typed) is None


def test_a_key_is_found_among_other_text() -> None:
    assert secret_in(f"a = 1\nb = '{TOKEN}'\n") == TOKEN
    assert secret_in("a = 'sk-short'") is None
