#!/usr/bin/env python3
"""What bitsandbytes makes of matrices in NF4, on a processor: codes, scales and the numbers that come back. The matrices follow from
formulas that tests/base/test_nf4.c has, too, so that nf4.json is small. Environment as of make_golden.py, with bitsandbytes.

    /tmp/venv-golden/bin/pip install bitsandbytes
    /tmp/venv-golden/bin/python tests/golden/make_nf4.py
"""
import json
import os
import zlib

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # odd numbers of columns would be compiled for minutes

import bitsandbytes as bnb
import bitsandbytes.functional as F
import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [1, 2, 7, 63, 64, 65, 127, 128, 191, 64 * 5, 64 * 9 + 33, 64 * 31, 64 * 255 + 1, 64 * 256, 64 * 257, 64 * 1000 + 7, 64 * 20000]


def numbers(n, seed):
    """Roughly normal, of blocks whose magnitudes differ; of seed 1 a block of zeros, one of subnormals and one of tiny numbers; of
    seed 2 what lies between two values, and beside that."""
    i = np.arange(n, dtype=np.uint64)
    a = (i * 2654435761 + seed * 40503 + 12345) % 2**32
    b = (a * 1664525 + 1013904223) % 2**32
    x = ((a >> 8) % 65536 + (b >> 8) % 65536).astype(np.float64) - 65535.0
    x = (x / 2**21 * (1 + (i // 64 * 7) % 11)).astype(np.float32)
    if seed == 1:
        x[64:128] = 0.0
        x[128:192] = (x[128:192].astype(np.float64) * 2.0**-130).astype(np.float32)
        x[192:256] = (x[192:256].astype(np.float64) * 2.0**-120).astype(np.float32)
    if seed == 2:
        code = F.get_4bit_type("nf4", device="cpu")
        middle = ((code[:-1] + code[1:]) / 2).numpy()
        for k in range(n // 64):
            x[64 * k] = 1.0 if k % 2 else -1.0
            x[64 * k + 1 : 64 * k + 16] = middle
            x[64 * k + 16 : 64 * k + 31] = np.nextafter(middle, np.float32(1))
            x[64 * k + 31 : 64 * k + 46] = np.nextafter(middle, np.float32(-1))
    return x


def crc(a):
    return zlib.crc32(np.ascontiguousarray(a).tobytes())


def case(n, seed):
    x = torch.from_numpy(numbers(n, seed)).reshape(1, n)
    out = dict(n=n, seed=seed, numbers=crc(x.numpy()))
    for nested in (False, True):
        q, s = F.quantize_4bit(x, compress_statistics=nested, quant_type="nf4")
        s.dtype = torch.float32
        y = F.dequantize_4bit(q, s)
        s.dtype = torch.bfloat16
        z = F.dequantize_4bit(q, s)
        word = dict(scale=crc(s.absmax.numpy()), fp32=crc(y.numpy()), bf16=crc(z.view(torch.int16).numpy()))
        if nested:
            assert s.blocksize == 64 and s.state2.blocksize == 256 and torch.equal(s.state2.code, F.create_dynamic_map())
            word["mean"] = float(s.offset).hex()
            word["most"] = crc(s.state2.absmax.numpy())
        out["code"] = crc(q.numpy())
        out["nested" if nested else "plain"] = word
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    cases = [case(n, seed) for n in SIZES for seed in (0, 1, 2) if seed == 0 or n >= 256]
    info = dict(bitsandbytes=bnb.__version__, torch=torch.__version__, map=[float(v).hex() for v in F.get_4bit_type("nf4", device="cpu")],
                nested_map=crc(F.create_dynamic_map().numpy()), cases=cases)
    with open(os.path.join(HERE, "nf4.json"), "w") as f:
        json.dump(info, f, indent=1)
        f.write("\n")
    print(len(cases), "cases")
