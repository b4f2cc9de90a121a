from email.message import Message

import pytest
from foretype_lab.corpus import licences


def metadata(**fields: str | list[str]) -> Message:
    message = Message()
    for key, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            message[key.replace("_", "-")] = item
    return message


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ("MIT", True),
        ("Apache-2.0 OR BSD-3-Clause", True),
        ("GPL-3.0-only", False),
        ("MIT AND GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("(MIT OR GPL-2.0-only) AND Apache-2.0", True),
        ("(MIT AND GPL-2.0-only) OR LGPL-3.0-only", False),
        ("BSD-3-Clause AND (MIT OR MPL-2.0) AND 0BSD", True),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("MIT AND", False),
        ("(MIT", False),
        ("MIT Apache-2.0", False),
        ("mit-like", False),
        ("", False),
    ],
)
def test_an_expression_passes_only_where_permissive_terms_suffice(expression: str, passes: bool) -> None:
    assert licences.permissive_expression(expression) is passes


def test_the_expression_decides_before_the_classifiers() -> None:
    both = metadata(License_Expression="GPL-3.0-only", Classifier=["License :: OSI Approved :: MIT License"])
    assert licences.decide(both) == ("GPL-3.0-only", False)


def test_every_licence_classifier_has_to_pass() -> None:
    mit = "License :: OSI Approved :: MIT License"
    gpl = "License :: OSI Approved :: GNU General Public License v3 (GPLv3)"
    assert licences.decide(metadata(Classifier=["Programming Language :: Python", mit])) == ("MIT", True)
    assert licences.decide(metadata(Classifier=[mit, gpl]))[1] is False


@pytest.mark.parametrize("text", ["MIT License", "BSD", "Apache License, Version 2.0", "Apache 2.0", "ISC license"])
def test_plain_names_in_the_old_field_are_known(text: str) -> None:
    assert licences.decide(metadata(License=text))[1] is True


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Proprietary",
        "LGPL with exceptions",
        "GPL, not MIT",
        "This software is not under the MIT license",
        "GNU GENERAL PUBLIC LICENSE ... BSD",
        "MPL-2.0",
        "Mozilla Public License 2.0",
    ],
)
def test_anything_else_in_the_old_field_is_refused(text: str) -> None:
    name, passes = licences.decide(metadata(License=text))
    assert passes is False
    assert name
