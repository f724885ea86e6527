"""The tuner's side of a worker process: start, submit a job, poll, kill, restart."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from hbtvm.tuning.measuring.messages import LOST, NO_DEVICE, BuildJob, Failure, Job, Ready, RemoteJob, Reply

# The child takes the parent's search path before its first import: with "-m", a user's file that has the name
# of one of our packages would be imported instead.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[4].split('\\n'); "
    "from hbtvm.tuning.measuring.worker import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)


@dataclass(frozen=True)
class Limits:
    """The limits beyond which a worker is stopped or replaced."""

    start: float = 60.0  # seconds to start, import a program's module and load the program
    # `build`, `measure`: seconds for a job, once its program is loaded
    build: float = 20.0
    measure: float = 10.0
    memory: int = 4 * 2**30  # bytes of resident memory; a job that exceeds it is killed
    jobs: int = 150  # jobs after which a worker is replaced, because candidates may leak


class Worker:
    """A worker process, replaced whenever it ends or is killed.

    It is starting, idle, or busy with one job; `poll` updates the state. On Linux the process dies with the
    thread that created it.

    `limits`: when to stop or replace it.
    `module`: module to import before the first job; "" for none.
    """

    def __init__(self, limits: Limits, module: str) -> None:
        self._limits = limits
        self._module = module
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `close`)
        self._job: Job | None = None
        self._ready = False
        self._start()

    def _start(self) -> None:
        self._forget_output()
        path = [entry or os.getcwd() for entry in sys.path]
        ours, theirs = socket.socketpair()
        with theirs:
            end = theirs.fileno()
            arguments = [str(end), str(os.getpid()), self._module, "\n".join(path)]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=[end],
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self._starting = True
        self._done = 0
        self._deadline = time.monotonic() + self._limits.start

    @property
    def pid(self) -> int:
        """Process id, and id of the process group."""
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Whether it has a job."""
        return self._job is not None

    @property
    def starting(self) -> bool:
        """Whether it has not reported its start yet."""
        return self._starting

    @property
    def ready(self) -> bool:
        """Whether the job's program is loaded, so that the job's time counts."""
        return self._ready

    @property
    def remaining(self) -> float:
        """Seconds until the deadline, while it is busy or starting."""
        return max(0.0, self._deadline - time.monotonic())

    def submit(self, job: Job) -> None:
        """Send a job. The worker may still be starting, but not be busy."""
        worn = self._done >= self._limits.jobs or _resident(self.pid) > self._limits.memory
        if worn or self._process.poll() is not None:
            self.kill()
            self._start()
        self._forget_output()
        self._job = job
        self._ready = False
        self._deadline = time.monotonic() + self._limits.start
        with contextlib.suppress(BrokenPipeError):  # it just died: `poll` reports it
            self.connection.send(job)

    def poll(self) -> Reply | None:
        """Return the job's reply, without waiting, and become idle; None while there is none."""
        try:
            while self.connection.poll():
                message = self.connection.recv()
                if not isinstance(message, Ready):
                    self._done += 1
                    self._job = None
                    reply: Reply = message
                    return reply
                if self._starting:
                    self._starting = False
                else:
                    self._ready = True
                    allowed = self._limits.build if self._building else self._limits.measure
                    self._deadline = time.monotonic() + allowed
        except (EOFError, OSError):
            return self._lose("crash", self._how_it_ended())
        if self.busy and _resident(self.pid) > self._limits.memory:
            return self._lose("crash", f"it took more than {self._limits.memory / 2**20:.0f} MiB of memory")
        if (self.busy or self._starting) and self.remaining == 0:
            return self._lose(self._late, "it took too long")
        return None

    @property
    def _late(self) -> str:
        """Kind of failure of a job that takes too long."""
        if isinstance(self._job, RemoteJob):  # the device should have stopped it earlier
            return LOST if self._ready else NO_DEVICE
        return "build_timeout" if self._building else "timeout"

    @property
    def _building(self) -> bool:
        return isinstance(self._job, BuildJob)

    def _lose(self, kind: str, message: str) -> Failure | None:
        """Kill the process, and return the failure of its job, if any."""
        was_busy = self.busy
        self.kill()
        if not was_busy:  # it could not start: restart it with the next job
            return None
        self._start()
        return Failure(kind, message)

    def kill(self) -> None:
        """Kill the process group, until the next job."""
        self._job = None
        self._starting = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()

    def close(self) -> None:
        """Kill the process for good."""
        self.kill()
        self._output.close()

    def _forget_output(self) -> None:
        """Truncate the file of output; both processes share its position."""
        os.lseek(self._output.fileno(), 0, os.SEEK_SET)
        os.ftruncate(self._output.fileno(), 0)

    def _how_it_ended(self) -> str:
        """Describe how the process ended, with its last line of output."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            how = "the worker closed its connection"
        elif code < 0:
            how = f"the worker died of {signal.Signals(-code).name}"
        else:
            how = f"the worker exited with status {code}"
        last = last_line(self._output.fileno())
        return f"{how}: {last[:300]}" if last else how


def last_line(file: int) -> str:
    """Return the last line of a file that is not empty, without spaces around it; empty if there is none.

    `file`: descriptor of the file, of which the last 2,000 bytes are read.
    """
    tail = os.pread(file, 2000, max(0, os.fstat(file).st_size - 2000))
    return next(filter(None, map(str.strip, reversed(tail.decode(errors="replace").split("\n")))), "")


def _resident(pid: int) -> int:
    """Bytes of resident memory of a process; 0 if unknown."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
