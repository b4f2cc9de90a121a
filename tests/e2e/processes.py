"""What every user of a machine can see of its processes."""

import psutil


def who_was_given(secret: str) -> list[list[str]]:
    """The arguments of all processes that have a text among them."""
    lists = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [words for words in lists if any(secret in word for word in words)]
