from contextlib import closing

import pytest
from e2e.playground.page_support import Page


@pytest.fixture(scope="module")
def page():
    with closing(Page()) as it:
        yield it
