"""Running a program with a limit, such that what it printed is kept whoever ends it, and when its first step was done."""
import os
import re
import signal
import subprocess
import tempfile
import time

FIRST_STEP = re.compile(r"^(step 1/|\s+1 )", re.M) # of a run; of a check


class Ended(Exception):
    """A SIGTERM came."""


def raise_on_sigterm(first=lambda: None):
    """The first SIGTERM calls `first` and raises Ended; others are ignored, so that what is done about it is finished."""
    def handle(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        first()
        raise Ended()
    signal.signal(signal.SIGTERM, handle)


class Call:
    """status: as of the program; 124: it took too long. first: seconds until the first step was done, None: it was not."""
    def __init__(self, command, status=None, out="", err=""):
        self.command, self.status, self.out, self.err = command, status, out, err
        self.took, self.first = 0.0, None

    def follow(self, seconds, cwd=None, env=None, step=None):
        """step: the program is killed once it has said that one, with status 0."""
        began = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = subprocess.Popen(self.command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, cwd=cwd, env=dict(os.environ, **(env or {})))
            try:
                while self.status is None:
                    with_end = self._wait(child, 0.05)
                    self.out = _text(out)
                    self.took = time.monotonic() - began
                    if self.first is None and FIRST_STEP.search(self.out):
                        self.first = self.took
                    if with_end:
                        self.status = child.returncode
                    elif step and re.search(rf"^step {step}/", self.out, re.M):
                        time.sleep(0.5) # until metrics.jsonl has it
                        child.kill()
                        self.status = 0
                    elif self.took > seconds:
                        self.status = 124
            finally:
                self._stop(child)
                self.out, self.err = _text(out), _text(err).strip()
                self.took = time.monotonic() - began
        if self.status == 124:
            self.err = f"not done in {seconds:.0f} s; {self.err}"
        return self

    @staticmethod
    def _wait(child, seconds):
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    @classmethod
    def _stop(cls, child):
        """By a SIGTERM first, so that mpiexec ends its ranks."""
        if child.poll() is None:
            child.terminate()
        if not cls._wait(child, 3):
            child.kill()
            child.wait()


def _text(file):
    """All of it; where the child writes is not moved."""
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


def replace(path, text):
    """A file that is whole whenever it is read."""
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(path + ".new", path)
