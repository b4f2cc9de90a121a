"""What every user of a machine can see of its processes, and programs of our own for others to start."""

import sys

import psutil

PYTHON_SCRIPT = f"""#!/bin/sh
'''exec' "{sys.executable}" "$0" "$@"
' '''
"""
"""The head of a program in Python. A path with a space cannot stand behind `#!`: the shell reads the second line, Python a text."""


def who_was_given(secret: str) -> list[list[str]]:
    """The arguments of all processes that have a text among them."""
    lists = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [words for words in lists if any(secret in word for word in words)]
