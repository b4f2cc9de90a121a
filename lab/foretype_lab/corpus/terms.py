"""Under which terms a source may be used, by path: Debian's machine-readable copyright, licence texts, package.json.

The rule is the same everywhere: only what is recognised passes. A licence text is recognised by the sentence that makes
it that licence, never by its title; a path that no rule speaks of is left out.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import PurePosixPath

from foretype_lab.corpus import licences

_TEXTS = (
    ("Apache-2.0", r"Apache License,? Version 2\.0, January 2004|apache\.org/licenses/LICENSE-2\.0"),
    ("MIT", r"Permission is hereby granted, free of charge, to any person obtaining a copy"),
    (
        "BSD-3-Clause",
        r"Redistribution and use in source and binary forms.*?(Neither the name|names of (its|the)|may not)",
    ),
    ("BSD-2-Clause", r"Redistribution and use in source and binary forms"),
    (
        "ISC",
        r"Permission to use, copy, modify, (and/or|and) distribute this software for any purpose with or without fee",
    ),
    ("Zlib", r"Permission is granted to anyone to use this software for any purpose, including commercial"),
    ("Unlicense", r"free and unencumbered software released into the public domain"),
    ("PSF-2.0", r"PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2"),
)
_COPYLEFT = re.compile(
    r"GNU (Lesser |Library |Affero |Free )?(General|Documentation)|Mozilla Public|Eclipse Public|Common Development and|"
    r"Server Side Public|Business Source|Commons Clause|Elastic License|enterprise licen[cs]e",
    re.IGNORECASE,
)
_LICENCE_FILE = re.compile(r"(licen[cs]e|copying|unlicen[cs]e)([-._][\w.-]*)?", re.IGNORECASE)
_SPDX_LINE = re.compile(r"SPDX-License-Identifier:\s*([^\n*]+)")


def is_licence_file(path: str) -> bool:
    """Says whether a path looks like a licence text."""
    pure = PurePosixPath(path)
    known = pure.suffix.lower() in ("", ".txt", ".md", ".rst") or pure.suffix.isupper()
    return known and _LICENCE_FILE.fullmatch(pure.name) is not None


def identify(text: str) -> str | None:
    """Names the permissive licence whose text this is, or None; a text that speaks of copyleft, too, is not one."""
    flat = re.sub(r"\s+", " ", text)
    for name, pattern in _TEXTS:
        if found := re.search(pattern, flat, re.IGNORECASE):
            # What follows the licence (notices of bundled parts) speaks of those parts, which the folder filters drop.
            return None if _COPYLEFT.search(flat[: found.start()]) else name
    return None


def refused_header(text: str) -> bool:
    """Says whether the top of a file puts it under other terms than permissive ones."""
    top = text[:4000]
    if _COPYLEFT.search(top):
        return True
    return any(not licences.permissive_expression(name.strip()) for name in _SPDX_LINE.findall(top))


@dataclass(frozen=True)
class Terms:
    """What a source's own words allow.

    Attributes:
        licence: as found, for the manifest; ``unknown: …`` where nothing passes.
        rules: (pattern of paths, passes); the last that matches decides. ``*`` matches slashes, too.
    """

    licence: str
    rules: tuple[tuple[str, bool], ...]

    @property
    def passes(self) -> bool:
        """Whether anything of the source may be used."""
        return any(passes for _, passes in self.rules)

    def allows(self, path: str) -> bool:
        """Whether this path may be used."""
        decision = False
        for pattern, passes in self.rules:
            if fnmatch.fnmatchcase(path, pattern):
                decision = passes
        return decision


def of_metadata(metadata: Message) -> Terms:
    """Terms of a Python package's core metadata."""
    name, passes = licences.decide(metadata)
    return Terms(name, (("*", passes),))


def of_package_json(text: str) -> Terms:
    """Terms of an npm package: its ``license`` field, an SPDX expression."""
    try:
        found = json.loads(text).get("license")
    except (ValueError, AttributeError):
        found = None
    if not isinstance(found, str):
        return Terms("unknown: package.json states none", (("*", False),))
    return Terms(found, (("*", licences.permissive_expression(found)),))


def of_licence_texts(texts: Mapping[str, str]) -> Terms:
    """Terms of a folder by the licence texts in it: the nearest ones above a file decide, one permissive is enough.

    Several texts beside each other are a choice (``LICENSE-MIT``, ``LICENSE-APACHE``).
    """
    folders: dict[str, list[str | None]] = {}
    for path, text in texts.items():
        folders.setdefault(str(PurePosixPath(path).parent), []).append(identify(text))
    rules: list[tuple[str, bool]] = []
    for folder in sorted(folders, key=lambda folder: (folder != ".", folder.count("/"), folder)):
        passes = any(folders[folder])
        rules.append(("*" if folder == "." else f"{_escape(folder)}/*", passes))
    found = sorted({name for name in folders.get(".", []) if name})
    return Terms(" OR ".join(found) or "unknown: no permissive licence text at the top", tuple(rules) if found else ())


def _escape(folder: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", folder)


_DEBIAN_NAMES = {
    "expat": "MIT",
    "mit": "MIT",
    "mit/x11": "MIT",
    "x11": "MIT",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "apache-2.0": "Apache-2.0",
    "apache-2": "Apache-2.0",
    "isc": "ISC",
    "zlib": "Zlib",
    "cc0-1.0": "CC0-1.0",
    "cc0": "CC0-1.0",
    "unlicense": "Unlicense",
    "psf-2": "PSF-2.0",
    "psf-2.0": "PSF-2.0",
    "python-2.0": "Python-2.0",
    "0bsd": "0BSD",
}


def _debian_expression(text: str) -> str:
    words: list[str] = re.findall(r"[^\s,()]+|[()]", text)
    operators = {"and": "AND", "or": "OR", "and/or": "OR", "with": "WITH"}
    return " ".join({**operators, **_DEBIAN_NAMES}.get(word.lower(), word) for word in words)


def of_debian(copyright_text: str) -> Terms:
    """Terms of a Debian source package: its machine-readable ``debian/copyright``, file by file.

    A file of the older, free form says nothing that a rule could be made from: nothing passes.
    """
    if "copyright-format/1.0" not in copyright_text[:2000]:
        return Terms("unknown: debian/copyright is not machine-readable", ())
    rules: list[tuple[str, bool]] = []
    names: list[str] = []
    for stanza in re.split(r"\n\s*\n(?=\S)", copyright_text):
        fields = dict(_fields(stanza))
        if "files" in fields and "license" in fields:
            name = _debian_expression(fields["license"].split("\n")[0].strip())
            passes = licences.permissive_expression(name)
            rules += [(pattern, passes) for pattern in fields["files"].split()]
            names += [name] if passes and name not in names else []
    return Terms(" AND ".join(names) or "unknown: no permissive files", tuple(rules))


def _fields(stanza: str) -> Iterable[tuple[str, str]]:
    for found in re.finditer(r"^([A-Za-z-]+):[ \t]*(.*(?:\n[ \t]+.*)*)", stanza, re.MULTILINE):
        yield found[1].lower(), found[2]
