"""--dashboard: a terminal shows frames of the run, in any size, and is given back as it was: at the end, by ^C, by ^Z, and where the
run is killed. Output that is no terminal has nothing of it.

The terminal is a pseudo terminal; `Screen` knows the few sequences that the dashboard sends and refuses all others."""

import fcntl, glob, os, pty, re, select, signal, struct, subprocess, sys, tempfile, termios, time

LTRAIN = os.environ["LTRAIN"]
SMALL = "--model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick".split()
PATIENCE = 100  # seconds until a test gives up waiting


class Screen:
    """A terminal's two screens, from what is written to it."""

    sequence = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")

    def __init__(self, columns, rows):
        self.other, self.text, self.rest = False, "", ""
        self.entered = self.frames = 0
        self.colours = set()
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.grid = [[" "] * columns for _ in range(rows)]
        self.x = self.y = 0

    def lines(self):
        return ["".join(row).rstrip() for row in self.grid]

    def control(self, private, numbers, letter):
        if private:
            assert (numbers, letter) in (("1049", "h"), ("1049", "l"), ("25", "h"), ("25", "l")), (numbers, letter)
            if numbers == "1049":
                self.other = letter == "h"
                self.entered += self.other
        elif letter == "H":
            self.y, self.x = (int(n) - 1 for n in numbers.split(";"))
            self.frames += self.y == 0
        elif letter == "K":
            self.grid[self.y][self.x :] = [" "] * (self.columns - self.x)
        elif letter == "J":
            self.grid[self.y :] = [[" "] * self.columns for _ in range(self.rows - self.y)]
        else:
            assert letter == "m", letter
            self.colours.update(n for n in numbers.split(";") if n.startswith("3"))

    def write(self, text):
        text, self.rest, i = self.rest + text, "", 0
        while i < len(text):
            if text[i] == "\x1b":
                found = self.sequence.match(text, i)
                if not found:
                    self.rest = text[i:]
                    return
                self.control(*found.groups())
                i = found.end()
                continue
            if self.other:
                assert text[i] >= " ", "a control character in a frame: %r" % text[max(0, i - 40) : i + 20]
                assert self.x < self.columns and self.y < self.rows, "a frame is larger than the terminal"
                self.grid[self.y][self.x] = text[i]
                self.x += 1
            else:
                self.text += text[i]
            i += 1


class Terminal:
    """A program on a pseudo terminal."""

    def __init__(self, words, columns=80, rows=24, **variables):
        self.screen, self.bytes = Screen(columns, rows), b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.environ.update({"LC_ALL": "C.UTF-8", "TERM": "xterm", **variables})
            os.execv(LTRAIN, [LTRAIN, *words])
        self.mode = None

    def read(self):
        """Takes what has come; False at the end."""
        if select.select([self.fd], [], [], 0.05)[0]:
            try:
                got = os.read(self.fd, 1 << 16)
            except OSError:
                return False
            text = (self.bytes + got).decode("utf-8", "ignore")  # an incomplete character stays for the next time
            self.bytes = (self.bytes + got)[len(text.encode()) :]
            self.screen.write(text)
        return True

    def until(self, holds, what):
        end = time.time() + PATIENCE
        while not holds():
            assert self.read() and time.time() < end, "%s: %r\n%s" % (what, self.screen.text[-500:], "\n".join(self.screen.lines()))

    def finish(self):
        end = time.time() + PATIENCE
        while self.read():
            assert time.time() < end, "does not end"
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert not self.screen.other, "the terminal stays on its second screen"
        assert "\x1e" not in self.screen.text
        os.close(self.fd)
        return code

    def children(self):
        return [int(p) for p in open("/proc/%d/task/%d/children" % (self.pid, self.pid)).read().split()]

    def resize(self, columns, rows):
        self.screen.resize(columns, rows)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def shows(self, pattern):
        return any(re.search(pattern, line) for line in self.screen.lines())


def check_suspended():
    """^Z gives the terminal back until the run goes on, in other sizes; the run lasts until ^C, however fast the machine is.

    The terminal shrinks while the run is stopped and grows while it goes on, so that a frame that is under way fits."""
    t = Terminal([*SMALL, *"--steps 100000 --offload nvme --device cpu:discrete --out a --dashboard".split()])
    before = termios.tcgetattr(t.fd)
    t.until(lambda: t.shows("^run .*step [1-9][0-9]* of 100000, to go"), "no step is shown")
    assert not termios.tcgetattr(t.fd)[3] & termios.ECHO, "keys would be written into the frame"
    os.write(t.fd, b"\x1a")
    t.until(lambda: not t.screen.other, "^Z")
    assert os.waitpid(t.pid, os.WUNTRACED)[0] == t.pid and termios.tcgetattr(t.fd) == before
    t.resize(50, 9)
    os.kill(t.pid, signal.SIGCONT)
    t.until(lambda: t.screen.other and t.shows("^run "), "no view after ^Z")
    t.resize(100, 30)
    t.until(lambda: t.shows("^run ") and t.shows("^write "), "no view in another size")
    os.write(t.fd, b"\x03")
    assert t.finish() == 130 and t.screen.entered == 2


def check_view():
    """The last frame has all parts of the view, and figures of metrics.jsonl."""
    t = Terminal([*SMALL, *"--steps 60 --eval-fraction 0.1 --eval-every 30 --offload nvme --device cpu:discrete --out b --dashboard".split()], 100, 30)
    assert t.finish() == 0
    # The first screen has everything that was printed, but for the steps before the last.
    assert re.search(r"step 60  eval loss", t.screen.text) and "model: b/hf" in t.screen.text
    assert re.findall(r"step (\d+)/60", t.screen.text) == ["60"]
    lines = t.screen.lines()
    last = [line for line in open("b/metrics.jsonl")][-1]
    loss = re.search(r'"loss":([0-9.]+)', last).group(1)
    assert lines[0] == " ltrain  tiny  256 tokens  1 rank  b", lines[0]
    assert lines[1].startswith("run       " + "█" * 24 + "  step 60 of 60, to go 0 s"), lines[1]
    assert lines[2].startswith("loss      %.4f   held out" % float(loss)), lines[2]
    for name in ("speed", "device", "host", "nvme", "compute", "h2d", "d2h", "read", "write"):
        assert t.shows("^%s " % name), "\n".join(lines)
    curve = [line for line in lines if re.search("[▁▂▃▄▅▆▇█]", line) and re.match(r"[ 0-9.]{10}", line)]
    assert t.screen.colours == {"36"}, "the curve is coloured"
    assert len(curve) == 8 and curve[0][10] == "█" and curve[-1].count("▁") + curve[-1].count("█") > 5, "\n".join(lines)


def check_plain_locale():
    """Other locales get ASCII; NO_COLOR is obeyed."""
    t = Terminal([*SMALL, *"--steps 5 --out c --dashboard".split()], LC_ALL="C", NO_COLOR="1")
    assert t.finish() == 0 and t.shows("^run       #{24}  step 5 of 5"), "\n".join(t.screen.lines())
    assert not t.screen.colours


def check_stop(words, **variables):
    """^C saves, as without a dashboard; the last line says so on the first screen."""
    t = Terminal([*SMALL, *words], **variables)
    t.until(lambda: t.shows("step [1-9][0-9]* of 100000"), "no step is shown")
    os.write(t.fd, b"\x03")
    assert t.finish() == 130
    assert "once more to stop at once" in t.screen.text and glob.glob("d/checkpoints/step-*"), t.screen.text


def check_killed():
    """A run that is killed leaves a terminal in order, and a sentence."""
    t = Terminal([*SMALL, *"--steps 100000 --out e --dashboard".split()])
    t.until(lambda: t.shows("step [1-9][0-9]* of 100000"), "no step is shown")
    os.kill(t.children()[0], signal.SIGKILL)
    assert t.finish() == 128 + signal.SIGKILL
    assert "ltrain: the run was ended by signal 9 (Killed)" in t.screen.text, t.screen.text


def check_refused():
    """A refusal is read on the first screen."""
    t = Terminal([*SMALL, *"--steps 5 --lr -1 --out f --dashboard".split()])
    assert t.finish() == 2 and "--lr" in t.screen.text
    t = Terminal([*SMALL, *"--steps 5 --device-mem 100K --device cpu:discrete --out f --dashboard".split()])
    assert t.finish() == 3 and t.screen.entered and re.search("ltrain: .*device", t.screen.text), t.screen.text


def check_lines():
    """A pipe, and a terminal that cannot move its cursor, get lines as ever."""
    t = Terminal([*SMALL, *"--steps 3 --out h --dashboard".split()], TERM="dumb")
    assert t.finish() == 0 and not t.screen.entered and re.findall(r"step (\d)/3  loss", t.screen.text) == ["1", "2", "3"], t.screen.text
    done = subprocess.run([LTRAIN, *SMALL, *"--steps 3 --out g --dashboard".split()], capture_output=True, check=True)
    assert b"\x1b" not in done.stdout and b"\x1e" not in done.stdout and done.stdout.count(b"/3  loss") == 3


def main():
    directory = tempfile.TemporaryDirectory()
    os.chdir(directory.name)
    open("text.txt", "w").write(open(os.path.join(os.environ["LTRAIN_SOURCE_ROOT"], "README.md")).read())
    check_view()
    check_suspended()
    check_plain_locale()
    check_stop("--steps 100000 --out d --dashboard".split())
    check_killed()
    check_refused()
    check_lines()
    if sys.argv[1:] == ["ranks"]:
        subprocess.run(["rm", "-r", "d"], check=True)
        check_stop("--steps 100000 --ranks 2 --out d --dashboard".split())


main()
