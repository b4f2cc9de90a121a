"""A machine without anything to spare: what is read of it, and when."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from foretype_client.policy import machine
from foretype_client.policy.machine import Machine, Reading, Spared, read_linux, saver_is_on
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Kernel:
    """Counters of a machine of two processors, and how often they were read."""

    def __init__(self) -> None:
        self.others_s = self.ours_s = 0.0
        self.reads = 0
        self.saves = False

    def read(self, now: float, process: int) -> Reading | None:
        assert process == 7
        self.reads += 1
        return Reading(now, self.others_s + self.ours_s, self.ours_s)

    def machine(self, gateway: int | None = 7) -> Machine:
        return Machine(lambda: gateway, read=self.read, saves=lambda: self.saves, processors=2)


def test_others_that_take_all_processors_are_seen_within_two_looks_and_so_is_their_end() -> None:
    kernel = Kernel()
    asked = kernel.machine()
    assert asked.spared(100.0) is None  # nothing to compare with
    kernel.others_s += 10.0
    assert asked.spared(102.0) is None and kernel.reads == 1
    assert asked.spared(105.0) is Spared.BUSY
    assert asked.spared(106.0) is Spared.BUSY and kernel.reads == 2
    kernel.others_s += 5.0
    assert asked.spared(110.0) is None


def test_what_we_take_ourselves_is_no_reason() -> None:
    kernel = Kernel()
    asked = kernel.machine()
    asked.spared(0.0)
    kernel.ours_s, kernel.others_s = 5.0, 5.0
    assert asked.spared(5.0) is None


def test_after_a_long_pause_the_average_since_before_says_nothing() -> None:
    kernel = Kernel()
    asked = kernel.machine()
    asked.spared(0.0)
    kernel.others_s = 1000.0
    assert asked.spared(500.0) is None
    kernel.others_s += 10.0
    assert asked.spared(505.0) is Spared.BUSY


def test_a_battery_saver_is_a_reason_by_itself_and_a_gateway_elsewhere_is_none() -> None:
    kernel = Kernel()
    kernel.saves = True
    assert kernel.machine().spared(0.0) is Spared.BATTERY
    assert kernel.machine(gateway=None).spared(0.0) is None


def test_a_machine_that_cannot_be_read_is_not_spared() -> None:
    asked = Machine(lambda: 7, read=lambda *_: None, saves=lambda: False)
    assert [asked.spared(at) for at in (0.0, 5.0, 10.0)] == [None, None, None]


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 2), st.floats(0, 1)), max_size=30))
def test_it_is_read_at_most_once_in_three_seconds(keys: list[tuple[float, float, float]]) -> None:
    kernel, now = Kernel(), 0.0
    asked = kernel.machine()
    for pause_s, others, ours in keys:
        now += pause_s
        kernel.others_s += others * pause_s
        kernel.ours_s += ours * pause_s
        before = kernel.reads
        asked.spared(now)
        asked.spared(now)
        assert kernel.reads <= before + 1
    assert kernel.reads <= now / 3 + 1


@LINUX
def test_the_gateway_and_its_engine_are_ours_and_another_program_is_not() -> None:
    busy = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])"
    with (
        subprocess.Popen([sys.executable, "-c", parent], start_new_session=True) as gateway,
        subprocess.Popen([sys.executable, "-c", busy]) as other,
    ):
        try:
            children = Path(f"/proc/{gateway.pid}/task/{gateway.pid}/children")
            wait_until(lambda: children.read_text().strip())
            first = read_linux(0.0, gateway.pid)
            assert first is not None

            def grown() -> bool:
                now = read_linux(1.0, gateway.pid)
                return now is not None and now.ours_s > first.ours_s + 0.2

            wait_until(grown)
            another = read_linux(1.0, other.pid)
            assert another is not None and first.busy_s > 0
        finally:
            os.killpg(gateway.pid, signal.SIGKILL)
            other.kill()


@LINUX
def test_a_process_that_is_gone_cannot_be_read() -> None:
    assert read_linux(0.0, 2**22 + 1) is None


@pytest.mark.parametrize(("said", "saves"), [("low-power\n", True), ("balanced\n", False), (None, False)])
def test_what_the_desktop_s_power_saver_chose_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, saves: bool
) -> None:
    file = tmp_path / "platform_profile"
    if said is not None:
        file.write_text(said)
    monkeypatch.setattr(machine, "_SAVERS", ((file, "low-power"),))
    assert saver_is_on() is saves
