import logging

import pytest


@pytest.fixture(autouse=True)
def no_log_handler_is_left():
    """Take away the handlers that a test's command has put on the root logger: its stream is closed by the next test."""
    root = logging.getLogger()
    before = {id(handler) for handler in root.handlers}
    yield
    for handler in [one for one in root.handlers if id(one) not in before and type(one).__module__ == "logging"]:
        root.removeHandler(handler)
