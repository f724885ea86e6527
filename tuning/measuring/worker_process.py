"""The tuner's side of one worker process: start, submit a job, poll, kill, restart."""

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

# The child's search path is set to the parent's before anything of ours is imported: with
# "-m", a file of the user's that is called like one of our packages would be found first.
_BOOT = (
    "import sys; sys.path[:] = sys.argv[4].split('\\n'); "
    "from hbtvm.tuning.measuring.worker import main; main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])"
)


@dataclass(frozen=True)
class Limits:
    """What one worker may take before it is stopped or replaced.

    Attributes
    ----------
    start
        Seconds to start, import a program's module and make the program.
    build, measure
        Seconds for one job, once the program is there.
    memory
        Bytes of resident memory. A job that exceeds it is killed.
    jobs
        Number of jobs after which a worker is replaced, as candidates may leak.
    """

    start: float = 60.0
    build: float = 20.0
    measure: float = 10.0
    memory: int = 4 * 2**30
    jobs: int = 150


class Worker:
    """One worker process, replaced whenever it ends or is killed.

    At any time it is starting, idle, or busy with one job; `poll` updates that state. On Linux the
    process is killed when the thread that made it ends.

    Parameters
    ----------
    limits
        When to stop or replace it.
    module
        What to import ahead of the first job; "" for nothing.
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
        """Process id, which is also that of its process group."""
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Whether it works on a job."""
        return self._job is not None

    @property
    def starting(self) -> bool:
        """Whether it has yet to say that it started."""
        return self._starting

    @property
    def ready(self) -> bool:
        """Whether all that its job needs is at hand, so that the job's own time counts."""
        return self._ready

    @property
    def remaining(self) -> float:
        """Seconds until its patience ends; of use only while busy or starting."""
        return max(0.0, self._deadline - time.monotonic())

    def submit(self, job: Job) -> None:
        """Give it a job. It may still be starting, but not busy."""
        worn = self._done >= self._limits.jobs or _resident(self.pid) > self._limits.memory
        if worn or self._process.poll() is not None:
            self.kill()
            self._start()
        self._forget_output()
        self._job = job
        self._ready = False
        self._deadline = time.monotonic() + self._limits.start
        with contextlib.suppress(BrokenPipeError):  # it just died: `poll` will tell
            self.connection.send(job)

    def poll(self) -> Reply | None:
        """Look for news, without waiting.

        Returns
        -------
        What became of the job, once known: the worker is idle again. Else None.
        """
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
        """Kind of failure if the job takes too long now."""
        if isinstance(self._job, RemoteJob):  # its device would have ended it in good time
            return LOST if self._ready else NO_DEVICE
        return "build_timeout" if self._building else "timeout"

    @property
    def _building(self) -> bool:
        return isinstance(self._job, BuildJob)

    def _lose(self, kind: str, message: str) -> Failure | None:
        """Kill the process; report the job that was lost with it, if any."""
        was_busy = self.busy
        self.kill()
        if not was_busy:  # it could not even start: restart it with the next job
            return None
        self._start()
        return Failure(kind, message)

    def kill(self) -> None:
        """End the process and all that it started, until the next job."""
        self._job = None
        self._starting = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.connection.close()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._output.close()

    def _forget_output(self) -> None:
        """Empty the file that the process prints into; both share its position."""
        os.lseek(self._output.fileno(), 0, os.SEEK_SET)
        os.ftruncate(self._output.fileno(), 0)

    def _how_it_ended(self) -> str:
        """How the process ended, and the last line that it printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            how = "the worker closed its connection"
        elif code < 0:
            how = f"the worker died of {signal.Signals(-code).name}"
        else:
            how = f"the worker exited with status {code}"
        file = self._output.fileno()
        tail = os.pread(file, 2000, max(0, os.fstat(file).st_size - 2000))
        words = [line.strip() for line in tail.decode(errors="replace").split("\n") if line.strip()]
        return f"{how}: {words[-1][:300]}" if words else how


def _resident(pid: int) -> int:
    """Bytes of resident memory of a process; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return 0
