"""A run that counts its skips: the listed ones pass, one more fails, and one that is skipped no more is told."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from skips import read

HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.parametrize("one", [1, 2])
@pytest.mark.skipif({absent}, reason="no redis here")
def test_of_redis(one):
    pass

@pytest.mark.xfail(reason="nobody has written it")
def test_that_fails():
    assert False
"""


@pytest.fixture
def counted(tmp_path: Path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*options: str, absent: bool = True) -> subprocess.CompletedProcess[str]:
        (tmp_path / "test_it.py").write_text(TESTS.format(absent=absent))
        command = [sys.executable, "-m", "pytest", "-p", "skips", "-p", "xdist", "--skips", "list.toml", *options]
        env = {**os.environ, "PYTHONPATH": str(HERE), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    return run


def test_what_is_listed_may_be_skipped_and_nothing_else_by_however_many_workers(counted, tmp_path: Path) -> None:
    assert counted("--write-skips", "--skipped", "names").returncode == 0
    assert read(tmp_path / "list.toml") == {"no redis here": {"test_it.py": 2}}
    assert (tmp_path / "names").read_text() == "test_it.py::test_of_redis[1]\ntest_it.py::test_of_redis[2]\n"
    assert counted().returncode == 0

    (tmp_path / "test_more.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    more = counted("-n", "2")
    assert more.returncode == 1
    assert "test_more.py: 1 skipped and 0 listed: could not import 'no_such_module'" in more.stdout


def test_what_is_skipped_no_more_is_told(counted) -> None:
    counted("--write-skips")
    fewer = counted(absent=False)
    assert fewer.returncode == 0 and "may be taken out of" in fewer.stdout
    assert "test_it.py: 0 skipped and 2 listed: no redis here" in fewer.stdout
