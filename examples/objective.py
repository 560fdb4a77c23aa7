#!/usr/bin/env python3
"""An objective of one's own by the library: tokens that the model finds hard count more (the focal loss's factor, 1 - p).

    python3 objective.py --model tiny --seq-len 1024 --steps 20 --out runs/focal

Three functions of libltrain do it: ltrain_open_options, ltrain_logprobs, ltrain_train. The text is book.txt, as bytes. LTRAIN_LIBRARY
names the library if the system does not find it.
"""
import ctypes as c
import math
import os
import sys

BATCHES, WEIGHTS, LOGPROBS = 1, 2, 4
STEP, STEPS, SEQ_LEN, SEQUENCES = 1, 2, 3, 4


class Sequence(c.Structure):
    _fields_ = [("step", c.c_int64), ("number", c.c_int64), ("room", c.c_int64), ("used", c.c_int64),
                ("tokens", c.POINTER(c.c_int32)), ("targets", c.POINTER(c.c_int32)), ("positions", c.POINTER(c.c_int32)),
                ("weights", c.POINTER(c.c_float))]


class Metrics(c.Structure):
    _fields_ = [("step", c.c_int64), ("steps", c.c_int64), ("tokens", c.c_int64), ("targets", c.c_int64), ("loss", c.c_double),
                ("grad_norm", c.c_double), ("lr", c.c_double), ("seconds", c.c_double), ("skipped", c.c_int)]


BATCH = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Sequence))
WATCH = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Metrics))
lib = c.CDLL(os.environ.get("LTRAIN_LIBRARY", "libltrain.so.0"))
lib.ltrain_error.restype = c.c_char_p
lib.ltrain_get.restype = c.c_int64
lib.ltrain_get.argtypes = [c.c_void_p, c.c_int]
lib.ltrain_train.argtypes = [c.c_void_p, c.c_int64, BATCH, WATCH, c.c_void_p]
lib.ltrain_logprobs.argtypes = [c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p, c.c_void_p]
lib.ltrain_finish.argtypes = lib.ltrain_close.argtypes = [c.c_void_p]


def check(status):
    if status:
        sys.exit(f"objective: {lib.ltrain_error().decode()}")


options = [word.encode() for word in sys.argv[1:]]
session = c.c_void_p()
check(lib.ltrain_open_options(len(options), (c.c_char_p * len(options))(*options), BATCHES | WEIGHTS | LOGPROBS, c.byref(session)))
length, count = lib.ltrain_get(session, SEQ_LEN), lib.ltrain_get(session, SEQUENCES)
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "book.txt"), "rb") as f:
    book = f.read()


def texts(step):
    """The sequences of a step, as ids."""
    first = step * count * length
    return [[book[(first + k * length + i) % len(book)] for i in range(length)] for k in range(count)]


def score(sequences):
    """The log-probability of each token."""
    given = [(c.c_int32 * length)(*s) for s in sequences]
    out = [(c.c_float * length)() for _ in sequences]
    check(lib.ltrain_logprobs(session, count, (c.c_int64 * count)(*[length] * count), (c.c_void_p * count)(*map(c.addressof, given)),
                              (c.c_void_p * count)(*map(c.addressof, out))))
    return out


@WATCH
def report(_, metrics):
    m = metrics.contents
    print(f"step {m.step} of {m.steps}: weighted loss {m.loss:.4f}", flush=True)
    return 0


while lib.ltrain_get(session, STEP) < lib.ltrain_get(session, STEPS):
    sequences = texts(lib.ltrain_get(session, STEP))
    scores = score(sequences)

    @BATCH
    def fill(_, sequence):
        q = sequence.contents
        for i, token in enumerate(sequences[q.number]):
            q.tokens[i] = token
            if i + 1 < length:
                q.targets[i] = sequences[q.number][i + 1]
                q.weights[i] = 1 - math.exp(scores[q.number][i + 1])
        q.used = length
        return 0

    check(lib.ltrain_train(session, 1, fill, report, None))
check(lib.ltrain_finish(session))
check(lib.ltrain_close(session))
