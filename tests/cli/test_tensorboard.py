"""--tensorboard: the event files hold every number of metrics.jsonl, as TensorBoard's format frames it, before and after a resume.
--metrics-file: the file is Prometheus' text format, and has what the last line of metrics.jsonl has.

With LTRAIN_PEERS, a virtual environment that has the package tensorboard, that package reads them, too."""
import glob
import json
import math
import os
import re
import struct
import subprocess
import tempfile

LTRAIN = os.environ["LTRAIN"]
TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def masked_crc(data):
    """Returns the checksum of a record's part, by a table of the Castagnoli polynomial."""
    crc = 0xFFFFFFFF
    for b in data:
        crc = TABLE[(crc ^ b) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """Lists (number, value) of a message."""
    at, out = 0, []

    def varint():
        nonlocal at
        x = shift = 0
        while True:
            b = data[at]
            at += 1
            x |= (b & 127) << shift
            shift += 7
            if b < 128:
                return x

    while at < len(data):
        key = varint()
        kind = key & 7
        if kind == 0:
            out.append((key >> 3, varint()))
            continue
        n = {1: 8, 5: 4}.get(kind) or varint()
        assert at + n <= len(data), "a field ends behind its message"
        out.append((key >> 3, data[at : at + n]))
        at += n
    return out


def events(path):
    data, at = open(path, "rb").read(), 0
    while at < len(data):
        n, of_length = struct.unpack_from("<QI", data, at)
        body = data[at + 12 : at + 12 + n]
        (of_body,) = struct.unpack_from("<I", data, at + 12 + n)
        assert of_length == masked_crc(data[at : at + 8]) and of_body == masked_crc(body), "a checksum is wrong"
        at += 16 + n
        yield dict(fields(body))


def samples(text):
    """Parses the text format as its specification says: {(name, labels): value}, each behind a HELP and a TYPE of its name."""
    out, named, label = {}, [], r'([a-z_]+)="((?:[^"\\\n]|\\["\\n])*)"'
    assert text.endswith("\n"), "the last line ends"
    for line in text.splitlines():
        if line.startswith("#"):
            word, kind, name, rest = line.split(" ", 3)
            assert kind == ("TYPE" if named and named[-1] == (name, "HELP") else "HELP") and rest, line
            assert kind == "HELP" or rest == "gauge", line
            named.append((name, kind))
            assert named.count((name, kind)) == 1, "a name is described once"
            continue
        m = re.fullmatch(r"([a-z_]+)\{(%s(?:,%s)*)\} (\S+)" % (label, label), line)
        assert m and named[-1] == (m[1], "TYPE"), line
        labels = tuple(re.findall(label, m[2]))
        assert (m[1], labels) not in out, "a sample stands there once"
        x = float(m[m.lastindex])
        out[m[1], labels] = None if math.isnan(x) else x  # null in metrics.jsonl
    return out


def check_metrics_file(lines):
    """Compares run.prom with the last line of metrics.jsonl, and with the newest evaluation in it."""
    run, want = ("run", os.path.realpath("run")), {}
    kept = {key: x for o in lines for key, x in o.items() if key.startswith("eval_")}
    for key, x in {**kept, **lines[-1]}.items():
        name = "ltrain_" + key
        if key == "stalls":
            want.update({(name, (run, ("lane", lane), ("class", c))): y for lane, all in x.items() for c, y in all.items()})
        elif isinstance(x, dict):
            want.update({(name, (run, ("seen", seen))): y for seen, y in x.items()})
        elif isinstance(x, str):
            want[name, (run, ("value", x))] = 1
        else:
            want[name, (run,)] = x
    got = samples(open("run.prom").read())
    assert got == want, set(got.items()) ^ set(want.items())
    keys = {line.split("`")[1]: line.split(" | ")[2][:-2] for line in open(os.path.join(os.environ["LTRAIN_SOURCE_ROOT"], "docs/metrics.md")) if line.startswith("| `")}
    for line in open("run.prom"):
        if line.startswith("# HELP"):
            assert line.split(" ", 3)[3].startswith(keys[line.split()[2][len("ltrain_") :]].strip()), line
    assert sorted(os.listdir(".")) == ["run", "run.prom", "text.txt"], "nothing is left beside the file"


def check_failures(small):
    """A path that cannot be written is refused before the first step; a file that cannot be replaced later is said, and the run goes on."""
    done = subprocess.run([LTRAIN, *small.split(), *"--steps 1 --out other --metrics-file nowhere/x.prom".split()], capture_output=True, text=True)
    assert done.returncode == 1 and re.search("--metrics-file: cannot write .*/nowhere/x.prom: No such file", done.stderr), done.stderr
    assert not os.path.exists("other/hf")
    said = 0
    for n in range(1, 8):  # renames: some are the checkpoint's or the model's
        words = "--steps 1 --out third%d --metrics-file third.prom" % n
        done = subprocess.run([LTRAIN, *small.split(), *words.split()], env={**os.environ, "LTRAIN_FAULT": "rename:%d:ENOSPC" % n}, capture_output=True, text=True)
        said += done.returncode == 0 and "third.prom: No space left on device; the next step tries again" in done.stdout
    assert said == 1, "one rename is that of the step's file"


def main():
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720's check value
    directory = tempfile.TemporaryDirectory()
    os.chdir(directory.name)
    open("text.txt", "w").write(open(os.path.join(os.environ["LTRAIN_SOURCE_ROOT"], "README.md")).read())
    small = "--model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --eval-fraction 0.1 --eval-every 2"
    for words in (small.split() + "--steps 4 --save-every 2 --tensorboard --metrics-file run.prom --out run".split(), "--resume run --steps 6".split()):
        subprocess.run([LTRAIN, *words], check=True, stdout=subprocess.DEVNULL)
    want = {}
    lines = [json.loads(line) for line in open("run/metrics.jsonl")]
    check_metrics_file(lines)
    check_failures(small)
    for o in lines:
        for key, x in o.items():
            if isinstance(x, (int, float)) and not isinstance(x, bool) and key != "step":
                want[o["step"], key] = struct.pack("<f", x)
    files, got = sorted(glob.glob("run/tensorboard/events.out.tfevents.*")), {}
    assert len(files) == 2, files
    for k, path in enumerate(files):
        all_events = list(events(path))
        assert all_events[0][3] == b"brain.Event:2" and all_events[1][7] == b"\x08\x01"
        assert all_events[1][2] == (1, 5)[k], "a session begins behind the last step"
        for event in all_events[2:]:
            for number, value in fields(event[5]):
                scalar = dict(fields(value))
                got[event[2], scalar[1].decode().split("/")[1]] = scalar[2]
    assert got == want and len(want) > 100, (len(got), len(want))
    peers = os.environ.get("LTRAIN_PEERS")
    if peers and glob.glob(peers + "/lib/python*/site-packages/tensorboard"):
        program = "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as A; a = A('run/tensorboard'); a.Reload(); print(len(a.Scalars('train/loss')))"
        assert subprocess.run([peers + "/bin/python", "-c", program], check=True, capture_output=True, text=True).stdout.strip() == "6"
    print("%d numbers of 6 steps" % len(got))


main()
