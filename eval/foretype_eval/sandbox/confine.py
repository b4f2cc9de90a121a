"""What the kernel keeps a candidate program from doing: rlimits, a seccomp filter, Landlock, namespaces.

Standard library only: the zygote imports this module without the rest of the package. Every function returns what it achieved
instead of raising, because kernels differ; the caller reports the result (:class:`foretype_eval.sandbox.Isolation`).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import resource
import stat
import struct
import sys
from collections.abc import Iterable
from typing import Final

_LINUX: Final = sys.platform.startswith("linux")
_libc: Final = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWIPC: Final = 0x08000000
_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CLONE_THREAD: Final = 0x00010000
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_PR_SET_NO_NEW_PRIVS: Final = 38
_SECCOMP_MODE_FILTER: Final = 2
_SIGKILL: Final = 9

# Audit architecture, `clone`, and the calls refused with EPERM: new processes and programs, sockets (io_uring can open them
# too), signals to anybody, raising one's own limits, leaving the confinement.
_ARCHITECTURES: Final[dict[str, tuple[int, int, dict[str, int]]]] = {
    "x86_64": (
        0xC000003E,
        56,
        {
            "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "kill": 62, "tkill": 200, "tgkill": 234,
            "rt_sigqueueinfo": 129, "pidfd_send_signal": 424, "socket": 41, "socketpair": 53, "connect": 42,
            "io_uring_setup": 425, "ptrace": 101, "process_vm_writev": 311, "setrlimit": 160, "prlimit64": 302,
            "unshare": 272, "setns": 308, "mount": 165, "chroot": 161, "bpf": 321, "perf_event_open": 298,
            "shmget": 29, "msgget": 68, "semget": 64, "mq_open": 240,
        },
    ),
    "aarch64": (
        0xC00000B7,
        220,
        {
            "execve": 221, "execveat": 281, "kill": 129, "tkill": 130, "tgkill": 131, "rt_sigqueueinfo": 138,
            "pidfd_send_signal": 424, "socket": 198, "socketpair": 199, "connect": 203, "io_uring_setup": 425,
            "ptrace": 117, "process_vm_writev": 271, "setrlimit": 164, "prlimit64": 261, "unshare": 97, "setns": 268,
            "mount": 40, "chroot": 51, "bpf": 280, "perf_event_open": 241, "shmget": 194, "msgget": 186, "semget": 190,
            "mq_open": 180,
        },
    ),
}  # fmt: skip
_CLONE3: Final = 435

_BPF_LOAD: Final = 0x20  # load a 32-bit word of seccomp_data
_BPF_EQUAL: Final = 0x15
_BPF_AT_LEAST: Final = 0x35
_BPF_ANY_BIT: Final = 0x45
_BPF_RETURN: Final = 0x06
_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ERRNO: Final = 0x00050000

_LANDLOCK_CREATE: Final = 444
_LANDLOCK_ADD_RULE: Final = 445
_LANDLOCK_RESTRICT: Final = 446
_ACCESS_EXECUTE: Final = 1 << 0
_ACCESS_WRITE_FILE: Final = 1 << 1
_ACCESS_READ_FILE: Final = 1 << 2
_ACCESS_READ_DIR: Final = 1 << 3
_ACCESS_TRUNCATE: Final = 1 << 14
_ACCESS_ON_FILES: Final = _ACCESS_EXECUTE | _ACCESS_WRITE_FILE | _ACCESS_READ_FILE | _ACCESS_TRUNCATE
_ACCESS_BY_ABI: Final = {1: (1 << 13) - 1, 2: (1 << 14) - 1}  # 3 and later: (1 << 15) - 1


def _syscall_filter() -> bytes | None:
    known = _ARCHITECTURES.get(platform.machine())
    if not _LINUX or known is None:
        return None
    audit, clone, refused = known
    numbers = sorted(refused.values())
    # Layout: 6 instructions of preamble, one comparison per number, the clone test, then the four verdicts.
    code: list[tuple[int, int, int, int]] = [
        (_BPF_LOAD, 0, 0, 4),
        (_BPF_EQUAL, 1, 0, audit),
        (_BPF_RETURN, 0, 0, _KILL),
        (_BPF_LOAD, 0, 0, 0),
    ]
    allow = len(code) + 1 + len(numbers) + 4
    refuse, absent = allow + 1, allow + 2

    def jump(opcode: int, value: int, to: int) -> None:
        code.append((opcode, to - len(code) - 1, 0, value))

    jump(_BPF_AT_LEAST, 0x40000000, refuse)  # the x32 ABI would be a second set of numbers
    for number in numbers:
        jump(_BPF_EQUAL, number, refuse)
    jump(_BPF_EQUAL, _CLONE3, absent)  # flags behind a pointer cannot be read here; libc falls back to clone
    code.append((_BPF_EQUAL, 0, allow - len(code) - 1, clone))
    code.append((_BPF_LOAD, 0, 0, 16))
    code.append((_BPF_ANY_BIT, allow - len(code) - 1, refuse - len(code) - 1, _CLONE_THREAD))
    code.append((_BPF_RETURN, 0, 0, _ALLOW))
    code.append((_BPF_RETURN, 0, 0, _ERRNO | errno.EPERM))
    code.append((_BPF_RETURN, 0, 0, _ERRNO | errno.ENOSYS))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def can_block_syscalls() -> bool:
    """Whether this kernel and machine take our filter; tried in a forked child, since a filter cannot be removed."""
    if _syscall_filter() is None:
        return False
    child = os.fork()
    if child == 0:
        os._exit(0 if block_syscalls() else 1)
    return os.waitpid(child, 0)[1] == 0


def block_syscalls() -> bool:
    """Refuse new processes, programs, sockets and signals for this process, for ever; threads stay allowed."""
    program = _syscall_filter()
    if program is None:
        return False
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    return (
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) == 0
    )


def enter_namespaces() -> bool:
    """Move into user, network and IPC namespaces of one's own: no interface but a dead loopback, no power of root's."""
    if not _LINUX:
        return False
    uid, gid = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET | _CLONE_NEWIPC) != 0:
        return False
    for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        # Without a mapping files belong to "nobody", which only looks odd: access goes by the outer ids.
        with contextlib.suppress(OSError), open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(line)
    return True


def landlock_ruleset(readable: Iterable[str], devices: Iterable[str], writable: str) -> int | None:
    """A Landlock rule set (a file descriptor): read below `readable`, read and write `devices`, anything below `writable`.

    Returns None where the kernel has no Landlock (before 5.13, or switched off).
    """
    if not _LINUX:
        return None
    abi = _libc.syscall(_LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        return None
    handled = _ACCESS_BY_ABI.get(abi, (1 << 15) - 1)
    attributes = struct.pack("=Q", handled)
    ruleset = _libc.syscall(_LANDLOCK_CREATE, attributes, len(attributes), 0)
    if ruleset < 0:
        return None
    read = _ACCESS_EXECUTE | _ACCESS_READ_FILE | _ACCESS_READ_DIR
    device = _ACCESS_READ_FILE | _ACCESS_WRITE_FILE | (_ACCESS_TRUNCATE & handled)
    rules = [(path, read) for path in readable] + [(path, device) for path in devices] + [(writable, handled)]
    for path, access in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue  # a path that does not exist needs no permission
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _ACCESS_ON_FILES  # the kernel refuses a rule for a file with rights on folders
        rule = struct.pack("=Qi", access, descriptor)
        failed = _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, rule, 0) != 0
        os.close(descriptor)
        if failed:
            os.close(ruleset)
            return None
    return ruleset


def restrict_files(ruleset: int) -> bool:
    """Apply a rule set to this process, for ever."""
    return _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0


def set_limits(*, cpu_s: int, memory_bytes: int, file_bytes: int, open_files: int, processes: int) -> None:
    """Set the resource limits of this process, soft and hard, and let it die with its parent."""
    limits = [
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, processes),
        (resource.RLIMIT_AS, memory_bytes),
    ]
    for kind, limit in limits:
        hard = resource.getrlimit(kind)[1]
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        # macOS refuses RLIMIT_AS below what is mapped already; the other limits still stand.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (value, value))
    if _LINUX:
        _libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
