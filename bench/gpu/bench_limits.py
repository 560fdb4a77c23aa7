"""Measurements behind a data sheet's efficiencies (src/machine/hardware.c): matrix products by shape through cuBLAS, a device copy, and the link to
the host, each direction alone, both at once, and beside products. bf16, random data. Writes limits.json."""
import argparse
import sys
import torch

import timing

ROWS = 16384
PRODUCTS = {  # name -> m, n, k and whether a and b are transposed: y = x W, dx = dy W^T, dW = x^T dy of an 8B's layer; then small ones
    "8b q": (ROWS, 4096, 4096, 0, 0), "8b gate": (ROWS, 14336, 4096, 0, 0), "8b down": (ROWS, 4096, 14336, 0, 0),
    "8b gate dx": (ROWS, 4096, 14336, 0, 1), "8b gate dW": (4096, 14336, ROWS, 1, 0), "8b q dW": (4096, 4096, ROWS, 1, 0),
    "8b head": (4096, 128256, 4096, 0, 0), "1b q": (ROWS, 2048, 2048, 0, 0), "1b gate": (ROWS, 8192, 2048, 0, 0),
    "1b gate dW": (2048, 8192, ROWS, 1, 0), "8192 cubed": (8192, 8192, 8192, 0, 0), "1024 rows": (1024, 4096, 4096, 0, 0),
    "256 rows": (256, 4096, 4096, 0, 0), "64 rows": (64, 4096, 4096, 0, 0), "256 columns": (ROWS, 256, 4096, 0, 0),
    "64 columns": (ROWS, 64, 4096, 0, 0), "sum of 256": (4096, 4096, 256, 0, 0), "sum of 64": (4096, 4096, 64, 0, 0),
}
BLOCKS = [1 << 20, 16 << 20, 256 << 20]  # bytes of one transfer


def products():
    calls, flops = {}, {}
    for name, (m, n, k, ta, tb) in PRODUCTS.items():
        a = torch.randn(*((k, m) if ta else (m, k)), device="cuda", dtype=torch.bfloat16)
        b = torch.randn(*((n, k) if tb else (k, n)), device="cuda", dtype=torch.bfloat16)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        calls[name] = lambda a=a.T if ta else a, b=b.T if tb else b, out=out: torch.matmul(a, b, out=out)
        flops[name] = 2.0 * m * n * k
    return calls, flops


def links():
    """name -> (call, bytes); a call's transfers are enqueued on streams of their own, which the current one waits for."""
    out, up, down = {}, torch.cuda.Stream(), torch.cuda.Stream()
    total = 512 << 20
    host = [torch.empty(total, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
    device = [torch.empty(total, dtype=torch.uint8, device="cuda") for _ in range(2)]
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)

    def call(block, h2d, d2h, compute):
        now = torch.cuda.current_stream()
        for s in (up, down):
            s.wait_stream(now)
        for at in range(0, total, block):
            part = slice(at, at + block)
            if h2d:
                with torch.cuda.stream(up):
                    device[0][part].copy_(host[0][part], non_blocking=True)
            if d2h:
                with torch.cuda.stream(down):
                    host[1][part].copy_(device[1][part], non_blocking=True)
        for _ in range(compute):
            torch.matmul(x, x, out=y)
        for s in (up, down):
            now.wait_stream(s)
    for block in BLOCKS:
        mb = f"{block >> 20} MiB"
        out[f"h2d {mb}"] = (lambda block=block: call(block, 1, 0, 0), total)
        out[f"d2h {mb}"] = (lambda block=block: call(block, 0, 1, 0), total)
        out[f"both {mb}"] = (lambda block=block: call(block, 1, 1, 0), 2 * total)
    out["both beside products"] = (lambda: call(BLOCKS[1], 1, 1, 10), 2 * total)
    out["products alone"] = (lambda: call(total, 0, 0, 10), 10 * 2 * 8192 ** 3)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    result = {"machine_before": timing.machine()}
    calls, flops = products()
    times = timing.take_turns(calls, options.seconds / 2)
    result["products"] = {n: dict(t, shape=PRODUCTS[n], tflops=flops[n] / t["median_ms"] / 1e9) for n, t in times.items()}
    for n, t in result["products"].items():
        print(f"product {n:16s} {t['tflops']:6.0f} TFLOP/s", flush=True)
    del calls
    src, dst = torch.randn(1 << 29, device="cuda"), torch.empty(1 << 29, device="cuda")
    moves = {"device copy": (lambda: dst.copy_(src), 2 * src.numel() * 4)}
    moves.update(links())
    times = timing.take_turns({n: c for n, (c, _) in moves.items()}, options.seconds / 2)
    result["moves"] = {n: dict(t, giga_per_s=moves[n][1] / t["median_ms"] / 1e6) for n, t in times.items()}
    for n, t in result["moves"].items():
        print(f"{n:24s} {t['giga_per_s']:8.1f} {'GFLOP/s' if n == 'products alone' else 'GB/s'} ({t['median_ms']:.2f} ms)", flush=True)
    result["machine_after"] = timing.machine()
    timing.write("limits.json", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
