"""Kernels on tensors of more than 2^31 elements against PyTorch: indices must not overflow. Skips what does not fit."""
import sys
import torch

import kernels
from bench_elements import attrs
from kernels import BF16


def sample(rows):
    """The rows to compare: the first, the last and those around 2^31 and 2^32 elements of 4096."""
    return [0, 1, 2**31 // 4096 - 1, 2**31 // 4096, min(2**32 // 4096, rows - 1), rows - 2, rows - 1]


def report(name, got, want, tolerance):
    error = float((got.double() - want.double()).norm() / want.double().norm())
    good = error <= tolerance
    print(f"{'ok ' if good else 'BAD'} {name}: {error:.1e}", flush=True)
    return good


def main():
    lib = kernels.Kernels()
    rows, dim, results = 2**20 + 3, 4096, []
    if torch.cuda.mem_get_info()[0] < 48 << 30:
        print("large tensors: less than 48 GiB free, skipped")
        return 0
    x, y = torch.empty(rows, dim, device="cuda", dtype=torch.bfloat16).normal_(), torch.empty(rows, dim, device="cuda", dtype=torch.bfloat16)
    at = sample(rows)
    weight = torch.randn(dim, device="cuda", dtype=torch.bfloat16)
    lib.op("norm", attrs("norm", rows=rows, dim=dim, eps=1e-5, kind=kernels.RMS, dtype=BF16), [y, x, weight, None])()
    want = torch.nn.functional.rms_norm(x[at].float(), (dim,), weight.float(), 1e-5)
    results.append(report("norm", y[at], want, 4e-3))
    lib.op("gelu", attrs("act", rows=rows, dim=dim, dtype=BF16), [y, x])()
    results.append(report("gelu", y[at], torch.nn.functional.gelu(x[at].float(), approximate="tanh"), 4e-3))
    positions = torch.arange(rows, dtype=torch.int32, device="cuda")
    inv_freq = (10000.0 ** (-torch.arange(0, 128, 2, device="cuda") / 128)).float()
    before = x[at].float().view(len(at), 32, 2, 64)
    lib.op("rope", attrs("rope", rows=rows, heads=32, head_dim=128, x_type=BF16), [x, positions, inv_freq])()
    angle = positions[at].double()[:, None] * inv_freq.double()
    c, s = angle.cos().float()[:, None], angle.sin().float()[:, None]
    want = torch.stack([before[:, :, 0] * c - before[:, :, 1] * s, before[:, :, 1] * c + before[:, :, 0] * s], 2)
    results.append(report("rope", x[at].float().view_as(want), want, 4e-3))
    tokens = torch.randint(0, rows, (rows,), dtype=torch.int32, device="cuda")
    lib.op("embed", attrs("embed", rows=rows, dim=dim, vocab=rows, dtype=BF16), [y, x, tokens, None, None])()
    results.append(report("embed", y[at], x[tokens[at].long()], 0.0))
    torch.cuda.synchronize()
    del x, y
    torch.cuda.empty_cache()
    n = 2**31 + 4099
    a, b = torch.ones(n, device="cuda"), torch.full((n,), 2.0, device="cuda")
    lib.op("accum", attrs("vec", n=n), [a, b])()
    total = torch.zeros(1, dtype=torch.float64, device="cuda")
    lib.op("sumsq", attrs("vec", n=n), [total, a])()
    results.append(report("accum", a[-5000:], torch.full((5000,), 3.0, device="cuda"), 0.0))
    results.append(report("sumsq", total, torch.tensor([9.0 * n], dtype=torch.float64, device="cuda"), 1e-12))
    print(f"large tensors: {sum(results)} of {len(results)} kernels agree")
    return 0 if all(results) else 1


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    sys.exit(main())
