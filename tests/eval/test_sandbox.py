"""Programs that misbehave in every way we can think of; each gets a verdict and the next program runs."""

import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from foretype_eval.errors import EvalError
from foretype_eval.sandbox import Program, ProgramLimits, Sandbox, Status

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="programs are run on Linux and macOS only")


@pytest.fixture(scope="module")
def own_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the programs' folders lie, and in the environment of all that these sandboxes start: other tests have sandboxes too."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("sandboxes"))
        patch.setenv("TMPDIR", folder)
        yield folder


@pytest.fixture(scope="module")
def sandbox(own_folder: str) -> Iterator[Sandbox]:
    with Sandbox(ProgramLimits(wall_s=1.5), workers=2) as opened:
        yield opened


@pytest.fixture(scope="module")
def patient_sandbox() -> Iterator[Sandbox]:
    """For what must end by anything but its time, however busy the machine."""
    with Sandbox(ProgramLimits(wall_s=60.0), workers=2) as opened:
        yield opened


def verdict_of(sandbox: Sandbox, source: str, **options: object):
    verdict = sandbox.submit(Program(source, **options)).result()  # type: ignore[arg-type]
    assert sandbox.submit(Program("assert 1 + 1 == 2")).result().passed, "the sandbox works on after it"
    return verdict


def test_a_program_that_runs_to_its_end_passes(sandbox: Sandbox) -> None:
    verdict = verdict_of(sandbox, "import math\nprint(math.pi)")
    assert verdict.status is Status.PASSED
    assert verdict.output.startswith("3.14")


@pytest.mark.parametrize(
    ("source", "status"),
    [
        ("assert False", Status.FAILED),
        ("def broken(:", Status.SYNTAX_ERROR),
        ("x = 'nul\0'", Status.SYNTAX_ERROR),
        ("raise SystemExit(0)", Status.FAILED),
        ("import os\nos._exit(0)", Status.FAILED),
        ("raise KeyboardInterrupt", Status.FAILED),
        ("x = 'a' * (1 << 33)", Status.OUT_OF_MEMORY),
        ("x = []\nwhile True: x.append(bytearray(50 << 20))", Status.OUT_OF_MEMORY),
        ("while True: print('a' * 100000)", Status.TOO_MUCH_OUTPUT),
        ("import os\nwhile True: os.write(1, b'a' * 100000)", Status.TOO_MUCH_OUTPUT),
        ("import ctypes\nctypes.string_at(0)", Status.CRASHED),
        ("def f(): f()\nf()", Status.FAILED),
    ],
)
def test_each_way_to_end_badly_has_its_status(patient_sandbox: Sandbox, source: str, status: Status) -> None:
    assert verdict_of(patient_sandbox, source).status is status


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time\ntime.sleep(60)",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_what_does_not_end_is_ended(sandbox: Sandbox, source: str) -> None:
    assert verdict_of(sandbox, source).status is Status.TIMED_OUT


def test_an_exception_that_cannot_be_printed_is_a_failure(sandbox: Sandbox) -> None:
    source = "class E(Exception):\n    def __str__(self): raise ValueError\nraise E"
    verdict = verdict_of(sandbox, source)
    assert (verdict.status, verdict.detail) == (Status.FAILED, "E")


def test_a_fork_bomb_leaves_no_process_behind(sandbox: Sandbox, own_folder: str) -> None:
    before = _processes(own_folder)
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    assert verdict_of(sandbox, bomb).status in {Status.TIMED_OUT, Status.CRASHED}
    assert _processes(own_folder) == before >= 2


def test_a_program_that_daemonises_leaves_no_process_behind(sandbox: Sandbox, own_folder: str) -> None:
    before = _processes(own_folder)
    source = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)"
    verdict_of(sandbox, source)
    assert _processes(own_folder) == before >= 2


def test_a_thread_bomb_ends(sandbox: Sandbox) -> None:
    source = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert not verdict_of(sandbox, source).passed


def test_other_programs_cannot_be_started(sandbox: Sandbox) -> None:
    if "seccomp" not in sandbox.isolation.processes:
        pytest.skip("this machine has no system-call filter")
    assert not verdict_of(sandbox, "import subprocess\nsubprocess.run(['/bin/true'])").passed
    assert not verdict_of(sandbox, "import os\nos.execv('/bin/true', ['true'])").passed


def test_no_socket_reaches_a_listener_on_this_machine(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        verdict = verdict_of(sandbox, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
        assert verdict.status is Status.FAILED
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_files_of_the_user_cannot_be_read_or_written(sandbox: Sandbox, tmp_path: Path) -> None:
    if sandbox.isolation.files != "landlock":
        pytest.skip("this kernel has no Landlock")
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    for source in (
        f"print(open({str(secret)!r}).read())",
        "print(open('/etc/passwd').read())",
        "print(open('/proc/self/environ').read())",
        f"import os\nos.listdir({str(tmp_path)!r})",
    ):
        verdict = verdict_of(sandbox, source)
        assert verdict.status is Status.FAILED
        assert "PermissionError" in verdict.detail
        assert verdict.output == ""
    verdict_of(sandbox, f"import os\nos.chmod({str(tmp_path)!r}, 0o777)\nopen({str(tmp_path / 'new')!r}, 'w')")
    assert not (tmp_path / "new").exists()


def test_home_and_working_directory_are_empty_and_gone_afterwards(sandbox: Sandbox) -> None:
    verdict = verdict_of(
        sandbox,
        "import os\nassert os.listdir() == []\nassert os.environ['HOME'] == os.getcwd()\n"
        "assert set(os.environ) == {'HOME', 'TMPDIR', 'PATH', 'LANG', 'LC_ALL'}\n"
        "open('left', 'w').write('x')\nos.makedirs('a/b')\nprint(os.getcwd())",
    )
    assert verdict.passed, verdict.detail
    assert not os.path.exists(verdict.output.strip())


def test_a_file_cannot_grow_without_bound(sandbox: Sandbox) -> None:
    verdict = verdict_of(sandbox, "with open('big', 'wb') as f:\n    for _ in range(100): f.write(b'x' * 1000000)")
    assert verdict.status in {Status.FAILED, Status.CRASHED}


def test_descriptors_of_the_sandbox_are_closed(sandbox: Sandbox) -> None:
    source = "import os\nopened = []\nfor n in range(3, 64):\n    try:\n        os.fstat(n)\n        opened.append(n)\n    except OSError: pass\nprint(opened)"
    assert verdict_of(sandbox, source).output.strip() == "[3]"  # its own report, which only ends its own verdict


def test_forging_the_report_is_not_passing(sandbox: Sandbox) -> None:
    forged = 'import os\nos.write(3, b\'{"status": "passed", "detail": ""}\')\nos._exit(0)'
    assert verdict_of(sandbox, forged).status is Status.FAILED


def test_standard_input_is_given(sandbox: Sandbox) -> None:
    verdict = verdict_of(sandbox, "print(int(input()) + int(input()))", stdin="2\n3\n")
    assert (verdict.status, verdict.output) == (Status.PASSED, "5\n")


def test_a_program_sees_nothing_of_the_one_before(sandbox: Sandbox) -> None:
    sandbox.submit(Program("import math, builtins\nmath.pi = 3\nbuiltins.left = 1\nopen('x', 'w')")).result()
    for _ in range(4):
        assert (
            sandbox.submit(Program("import math\nassert math.pi > 3.1\nassert 'left' not in dir(__builtins__)"))
            .result()
            .passed
        )


def test_verdicts_come_in_the_order_of_the_programs(sandbox: Sandbox) -> None:
    programs = [Program(f"import time\ntime.sleep({0.02 * (number % 3)})\nprint({number})") for number in range(20)]
    assert [verdict.output for verdict in sandbox.run(programs, ahead=7)] == [f"{number}\n" for number in range(20)]


def test_a_killed_sandbox_process_is_replaced() -> None:
    with Sandbox(workers=1) as sandbox:
        pids = sandbox.process_ids()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert sandbox.submit(Program("pass")).result().status is Status.CRASHED
        assert sandbox.submit(Program("pass")).result().passed
        assert set(sandbox.process_ids()).isdisjoint(pids)


def test_no_folder_is_left_when_the_sandbox_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with Sandbox(workers=1) as sandbox:
        assert sandbox.submit(Program("open('x', 'w')")).result().passed
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_an_unopened_sandbox_says_what_to_do() -> None:
    with pytest.raises(EvalError, match="with Sandbox"):
        Sandbox().submit(Program("pass"))


def test_the_interpreter_of_the_sandbox_has_no_third_party_packages(sandbox: Sandbox) -> None:
    assert not verdict_of(sandbox, "import numpy").passed
    assert not verdict_of(sandbox, "import foretype_eval").passed
    assert not verdict_of(sandbox, "import confine").passed


def _processes(folder: str) -> int:
    """How many run that were started with a folder for temporary files, whoever their parents are now."""
    found = psutil.process_iter(["environ"])
    return sum((one.info["environ"] or {}).get("TMPDIR") == folder for one in found)
