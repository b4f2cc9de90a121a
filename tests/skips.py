"""What is skipped is on a list, with its reason: `--skips FILE` fails a run that skips anything else, and tells what it ran of the list.

The list says, by reason, how many tests of which file are skipped. `--skipped FILE` writes their names, an argument of pytest's a
line, so that another machine can run what this one could not; `--write-skips` writes the list anew.
"""

import json
import tomllib
from collections import Counter
from pathlib import Path

import pytest

HEAD = "# What is skipped, by reason, and how many tests of each file; made by pytest --skips {file} --write-skips.\n"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("skips")
    group.addoption("--skips", type=Path, metavar="FILE", help="the list of what may be skipped; all else fails")
    group.addoption("--write-skips", action="store_true", help="write that list anew")
    group.addoption("--skipped", type=Path, metavar="FILE", help="write the names of what was skipped")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and (config.option.skips or config.option.skipped):
        config.pluginmanager.register(Skips(config.rootpath), "skips-counted")


def differences(listed: dict[str, dict[str, int]], seen: dict[str, dict[str, int]]) -> tuple[list[str], list[str]]:
    """A sentence for each file and reason with more skips than are listed, and with fewer."""
    more: list[str] = []
    fewer: list[str] = []
    for reason in sorted(listed.keys() | seen.keys()):
        before, now = listed.get(reason, {}), seen.get(reason, {})
        for file in sorted(before.keys() | now.keys()):
            skipped, may = now.get(file, 0), before.get(file, 0)
            told = f"{file}: {skipped} skipped and {may} listed: {reason}"
            more += [told] if skipped > may else []
            fewer += [told] if skipped < may else []
    return more, fewer


def read(file: Path) -> dict[str, dict[str, int]]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


def write(file: Path, seen: dict[str, dict[str, int]]) -> None:
    tables = (
        f"\n[{json.dumps(reason)}]\n"
        + "".join(f"{json.dumps(name)} = {count}\n" for name, count in sorted(files.items()))
        for reason, files in sorted(seen.items())
    )
    file.write_text(HEAD.format(file=file) + "".join(tables), encoding="utf-8")


class Skips:
    """The skips of a run, of all its workers."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reasons: dict[str, str] = {}  # a module that is skipped is told by each worker
        self._more: list[str] = []
        self._fewer: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self._remember(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._remember(report)

    def _remember(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            reason = report.longrepr[2].removeprefix("Skipped: ")
            self._reasons[report.nodeid] = reason.replace(f"{self._root}/", "")

    def _counted(self) -> dict[str, dict[str, int]]:
        counted: dict[str, Counter[str]] = {}
        for name, reason in self._reasons.items():
            counted.setdefault(reason, Counter())[name.partition("::")[0]] += 1
        return {reason: dict(files) for reason, files in counted.items()}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        option = session.config.option
        if option.skipped:
            option.skipped.parent.mkdir(parents=True, exist_ok=True)
            option.skipped.write_text("".join(f"{name}\n" for name in sorted(self._reasons)), encoding="utf-8")
        if not option.skips:
            return
        if option.write_skips:
            write(option.skips, self._counted())
            return
        self._more, self._fewer = differences(read(option.skips), self._counted())
        if self._more and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        for told, what in ((self._more, "that are not in"), (self._fewer, "that may be taken out of")):
            if told:
                terminalreporter.section(f"skips {what} {config.option.skips}")
            for line in told:
                terminalreporter.line(line)
