import pytest
from e2e.playground.page_support import Page


@pytest.fixture(scope="module")
def page():
    it = Page()
    try:
        yield it
    finally:
        it.close()
