"""--tensorboard: the event files hold every number of metrics.jsonl, as TensorBoard's format frames it, before and after a resume.

With LTRAIN_PEERS, a virtual environment that has the package tensorboard, that package reads them, too."""
import glob
import json
import os
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


def main():
    assert masked_crc(b"123456789") == (((0xE3069283 >> 15) | (0xE3069283 << 17)) + 0xA282EAD8) & 0xFFFFFFFF  # RFC 3720's check value
    directory = tempfile.TemporaryDirectory()
    os.chdir(directory.name)
    open("text.txt", "w").write(open(os.path.join(os.environ["LTRAIN_SOURCE_ROOT"], "README.md")).read())
    small = "--model tiny --data text.txt --seq-len 256 --tiles rows=64,loss=64,group=4096 --threads 1 --effort quick --eval-fraction 0.1 --eval-every 2"
    for words in (small.split() + "--steps 4 --save-every 2 --tensorboard --out run".split(), "--resume run --steps 6".split()):
        subprocess.run([LTRAIN, *words], check=True, stdout=subprocess.DEVNULL)
    want = {}
    for line in open("run/metrics.jsonl"):
        o = json.loads(line)
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
