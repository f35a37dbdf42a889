"""The program inside the sandbox: gives up what it may do, then runs the code. Never imported by rewardkit.

It reads its job from stdin, and reports through the descriptor in argv[1], one line per event, each with the job's nonce.
"""

import ctypes
import json
import os
import platform
import resource
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
EPERM = 1

# System calls that a computing interpreter makes. All others fail with EPERM, so there are no sockets, no processes, no
# threads, no signals to others, no changed limits, and no files but for reading.
ALLOWED = {
    "x86_64": (
        0xC000003E,
        {  # read write close stat fstat lstat poll lseek mmap mprotect munmap brk
            *(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
            *(13, 14, 15, 16, 17, 19, 20, 21),  # rt_sig* ioctl pread64 readv writev access
            *(23, 24, 25, 28, 32, 33, 35, 36, 38, 39),  # select sched_yield mremap madvise dup* nanosleep itimer getpid
            *(60, 63, 72, 79, 89, 96, 98, 99, 100),  # exit uname fcntl getcwd readlink times
            *(
                102,
                104,
                107,
                108,
                110,
                131,
                186,
                201,
                202,
                204,
                217,
                218,
            ),  # ids sigaltstack gettid time futex getdents64
            *(228, 229, 230, 231, 262, 267, 269, 270, 271, 273),  # clock_* exit_group newfstatat readlinkat faccessat
            *(318, 324, 332, 334, 436, 439),  # getrandom membarrier statx rseq close_range faccessat2
        },
        {2: 1, 257: 2},  # open, openat: index of the flags argument
    ),
    "aarch64": (
        0xC00000B7,
        {
            *(17, 23, 24, 25, 29, 48, 57, 61, 62, 63, 64, 65, 66, 67, 72, 73, 78, 79, 80),
            *(93, 94, 96, 98, 99, 101, 102, 103, 113, 114, 115, 123, 124, 132, 134, 135, 139, 153, 160, 165, 169),
            *(172, 173, 174, 175, 176, 177, 178, 179, 214, 215, 216, 222, 226, 233),
            *(278, 283, 291, 293, 436, 439),
        },
        {56: 2},
    ),
}
# O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND; the two last octal digits differ by no architecture that is listed.
WRITING = 0o1 | 0o2 | 0o100 | 0o1000 | 0o2000

BPF_LD_W_ABS, BPF_JEQ, BPF_JSET, BPF_JGE, BPF_RET = 0x20, 0x15, 0x45, 0x35, 0x06
SECCOMP_ALLOW, SECCOMP_KILL, SECCOMP_ERRNO = 0x7FFF0000, 0x80000000, 0x00050000 | EPERM


def instruction(code, when_true, when_false, value):
    return struct.pack("=HBBI", code, when_true, when_false, value)


def seccomp_program(architecture, allowed, opening):
    """A filter that allows ``allowed``, and opening files without writing."""
    program = [
        instruction(BPF_LD_W_ABS, 0, 0, 4),  # architecture
        instruction(BPF_JEQ, 1, 0, architecture),
        instruction(BPF_RET, 0, 0, SECCOMP_KILL),
        instruction(BPF_LD_W_ABS, 0, 0, 0),  # number of the call
    ]
    for number, argument in opening.items():
        program += [
            instruction(BPF_JEQ, 0, 4, number),
            instruction(BPF_LD_W_ABS, 0, 0, 16 + 8 * argument),  # low half of the argument, little-endian
            instruction(BPF_JSET, 0, 1, WRITING),
            instruction(BPF_RET, 0, 0, SECCOMP_ERRNO),
            instruction(BPF_RET, 0, 0, SECCOMP_ALLOW),
        ]
    for number in sorted(allowed):
        program += [instruction(BPF_JEQ, 0, 1, number), instruction(BPF_RET, 0, 0, SECCOMP_ALLOW)]
    program.append(instruction(BPF_RET, 0, 0, SECCOMP_ERRNO))
    return b"".join(program)


def isolate():
    """Gives up the network and processes for good. Returns how, or raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    reasons = []
    machine = platform.machine()
    if machine in ALLOWED:
        program = seccomp_program(*ALLOWED[machine])
        buffer = ctypes.create_string_buffer(program, len(program))
        header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer)))
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and (
            libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) == 0
        ):
            return "seccomp"
        reasons.append(f"seccomp: {os.strerror(ctypes.get_errno())}")
    else:
        reasons.append(f"seccomp: no filter for {machine}")
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0:
        return "namespace"
    reasons.append(f"namespace: {os.strerror(ctypes.get_errno())}")
    raise OSError("; ".join(reasons))


def limit(limits):
    """Hard limits; they cannot be raised again."""
    size = int(limits["memory_mb"]) << 20
    seconds = max(1, int(-(-limits["cpu_s"] // 1)))
    for name, value in (
        (resource.RLIMIT_AS, size),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_FSIZE, int(limits["file_mb"]) << 20),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(name)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(name, (value, value))
    # Counts all processes of the user, so it can only say "no more than there are now"; root is not bound by it.
    resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"], limits["processes"]))


def main():
    """Reads the job, isolates itself, runs sources and checks."""
    job = json.loads(sys.stdin.buffer.read())
    report = int(sys.argv[1])
    nonce = job["nonce"]

    def tell(message):
        # The pipe is the caller's; a short line is written whole or not at all.
        os.write(report, f"{nonce} {message[:400]}\n".encode("utf-8", "backslashreplace"))

    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    import linecache  # noqa: F401  (what formats a traceback, imported while files can be opened)
    import traceback  # noqa: F401

    limit(job["limits"])
    try:
        how = isolate()
    except OSError as error:
        if not job["allow_unisolated"]:
            tell(f"unavailable {error}")
            return
        how = "none"
    tell(f"isolation {how}")

    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    for source in job["sources"]:
        try:
            exec(compile(source, "<answer>", "exec"), namespace)
        except BaseException as error:  # noqa: BLE001  (the code may raise anything, SystemExit included; it is reported)
            tell(f"error {described(error)}")
            return
    for check in job["checks"]:
        try:
            exec(compile(check, "<check>", "exec"), namespace)
        except BaseException as error:  # noqa: BLE001  (as above)
            tell(f"fail {check[:160]!r}: {described(error)}")
            return
        tell("check")
    tell("done")


def described(error):
    """One line on an exception, whose own text is the code's and may raise."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001  (the code's own __str__)
        text = ""
    return f"{type(error).__name__}: {text}".replace("\n", " ")


if __name__ == "__main__":
    main()
