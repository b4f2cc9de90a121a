"""For every room, whether it is run alone or with the others: hypothesis' profile, and the markers that a folder gives."""

import gc
import logging
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from stand_in import data_with_a_network

pytest_plugins = ["leftovers", "skips"]

# A busy machine is no fault of the code.
BUSY = [HealthCheck.too_slow]
# Every run draws others: two of them try as many as one of twice the size.
settings.register_profile("foretype", deadline=None, max_examples=50, suppress_health_check=BUSY)
# `make mutants`: the same examples for every mutant, none kept for the next, and the first that fails will do.
settings.register_profile(
    "mutants", deadline=None, database=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("foretype")

HERE = Path(__file__).parent
RULES = ("test_doors.py", "test_error_trees.py", "test_modules.py", "test_promises.py", "test_sizes.py")
EDITORS = (HERE / "e2e" / "editors", HERE / "e2e" / "playground")


def pytest_configure(config: pytest.Config) -> None:
    # Where readline is loaded in the process that starts the workers, it writes the size of a terminal into what they inherit.
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    if hasattr(os, "nice"):
        os.nice(
            1
        )  # as batch work is: what tests compute is not taken for programs of a user's that leave the product nothing
    data = tempfile.TemporaryDirectory(prefix="foretype-data-")
    config.add_cleanup(data.cleanup)
    data_with_a_network(Path(data.name))


def pytest_itemcollected(item: pytest.Item) -> None:
    if any(folder in item.path.parents for folder in EDITORS):
        item.add_marker(pytest.mark.editors)
    if item.path.parent == HERE and item.path.name in RULES:
        item.add_marker(pytest.mark.rules)


@pytest.hookimpl(trylast=True)  # a room's own limits are marked by then
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        marked, hangs_s = item.get_closest_marker("timeout"), float(config.getini("timeout"))
        if marked is not None and marked.args[0] < hangs_s and config.getoption("timeout") is None:
            item.add_marker(pytest.mark.timeout(hangs_s), append=False)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no look for garbage goes through it again, which takes 0.3 s each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def no_log_handler_is_left():
    """Take away the handlers that a test's command has put on the root logger: its stream is closed by the next test."""
    root = logging.getLogger()
    before = {id(handler) for handler in root.handlers}
    yield
    for handler in [one for one in root.handlers if id(one) not in before and type(one).__module__ == "logging"]:
        root.removeHandler(handler)
