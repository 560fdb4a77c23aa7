"""Element-wise and reducing kernels beside a device-to-device copy: bytes that must move (each input read once, each output written
once) per second, over what the copy reaches; and what a small model's step calls often, SMALL_CALLS at a time, where a call's fixed part
counts. `--seconds N` for all of it, `--only PREFIX ...` for some. Writes elements.json."""
import argparse
import sys
import torch

import kernels
import timing
from kernels import BF16, Attrs

DIM, FFN, VOCAB, HEADS, HEAD_DIM = 4096, 14336, 128256, 32, 128
LOSS_ROWS, EMBED_ROWS = 4096, 16384  # rows of one call: a chunk of logits; rows that the embedding's gradient groups at a time
SMALL_ROWS, SMALL_DIM = 4096, 2048  # a 1B at 4k tokens
SMALL_GROUPS = [21, 24]  # log2 of the number of elements in an update group
SMALL_CALLS = 20


def bf16(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def fp32(*shape):
    return torch.randn(*shape, device="cuda")


def attrs(member, **values):
    a = Attrs()
    for name, value in values.items():
        setattr(getattr(a, member), name, value)
    return a


def struct_on_device(value):
    return torch.frombuffer(bytearray(bytes(value)), dtype=torch.uint8).cuda()


def several(call):
    """SMALL_CALLS calls as one graph, so that what starts them takes no time."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        for _ in range(SMALL_CALLS):
            call()
    return lambda keep=call: graph.replay()  # the default argument keeps the tensors alive


def cases(lib, rows):
    """name -> (call, bytes)"""
    n, f = rows * DIM, rows * FFN
    record = struct_on_device(kernels.Record(inv_targets=1e-4, clip=1.0, lr=1e-4, weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8,
                                             bias1=0.1, bias2=0.05))
    norm = struct_on_device(kernels.NormResult(norm=1.0, factor=1.0, skip=0))
    x, y, delta, weight = bf16(rows, DIM), bf16(rows, DIM), fp32(rows, DIM), bf16(DIM)
    out = {}

    def add(name, op, a, tensors, moved):
        out[name] = (lib.op(op, a, tensors), moved)
    add("add", "add", attrs("add", rows=rows, dim=DIM, dtype=BF16), [y, x, delta, None], n * 8)
    add("norm_rms", "norm", attrs("norm", rows=rows, dim=DIM, eps=1e-5, kind=kernels.RMS, dtype=BF16), [y, x, weight, None], n * 4)
    add("norm_layer", "norm", attrs("norm", rows=rows, dim=DIM, eps=1e-5, kind=kernels.LAYER, dtype=BF16), [y, x, weight, weight], n * 4)
    work, dweight = fp32(rows // 32 * 2 * DIM), fp32(DIM)
    add("norm_grad_rms", "norm_grad", attrs("norm", rows=rows, dim=DIM, eps=1e-5, kind=kernels.RMS, dtype=BF16),
        [y, x, weight, delta, dweight, None, work], n * 10)
    dbias = fp32(DIM)
    add("norm_grad_layer", "norm_grad", attrs("norm", rows=rows, dim=DIM, eps=1e-5, kind=kernels.LAYER, dtype=BF16),
        [y, x, weight, delta, dweight, dbias, work], n * 10)
    add("bias_grad", "bias_grad", attrs("bias", rows=rows, dim=DIM, dtype=BF16, y_type=BF16), [dweight, x], n * 2)
    positions = torch.arange(rows, dtype=torch.int32, device="cuda")
    inv_freq = 10000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    add("rope", "rope", attrs("rope", rows=rows, heads=HEADS, head_dim=HEAD_DIM, x_type=BF16), [x, positions, inv_freq.float()], n * 4)
    h = dict(rows=rows, heads=HEADS, head_dim=HEAD_DIM, dtype=BF16)
    per_head, lse, lse_part = fp32(rows, HEADS), fp32(HEADS, rows), fp32(HEADS, rows)
    add("attn_delta", "attn_delta", attrs("heads", **h), [per_head, x, y], n * 4)
    add("attn_merge", "attn_merge", attrs("heads", **h), [delta, lse, fp32(rows, DIM), lse_part], n * 12)
    add("cast_bf16", "cast", attrs("cast", n=n, y_type=BF16, x_type=kernels.F32), [y, delta], n * 6)
    gate, up, dy = bf16(rows, FFN), bf16(rows, FFN), bf16(rows, FFN)
    a = attrs("act", rows=rows, dim=FFN, dtype=BF16)
    add("swiglu", "swiglu", a, [dy, gate, up], f * 6)
    add("swiglu_grad", "swiglu_grad", a, [gate, up, dy], f * 12)
    add("gelu_tanh", "gelu", a, [dy, gate], f * 4)
    add("gelu_grad_tanh", "gelu_grad", a, [gate, dy], f * 8)
    add("gelu_erf", "gelu", attrs("act", rows=rows, dim=FFN, dtype=BF16, kind=1), [dy, gate], f * 4)
    table, tokens = bf16(VOCAB, DIM), torch.randint(0, VOCAB, (rows,), dtype=torch.int32, device="cuda")
    e = dict(rows=rows, dim=DIM, vocab=VOCAB, dtype=BF16)
    add("embed", "embed", attrs("embed", **e), [y, table, tokens, None, None], n * 4)
    dtable, some = fp32(VOCAB, DIM), min(rows, EMBED_ROWS)
    touched = int(tokens[:some].unique().numel()) * DIM * 8
    add("embed_grad", "embed_grad", attrs("embed", accumulate=1, **dict(e, rows=some)), [dtable, x, tokens], some * DIM * 2 + touched)
    logits, loss = fp32(LOSS_ROWS, VOCAB), torch.zeros(1, dtype=torch.float64, device="cuda")
    targets = torch.randint(0, VOCAB, (LOSS_ROWS,), dtype=torch.int32, device="cuda")
    add("loss_gradient", "loss", attrs("loss", rows=LOSS_ROWS, vocab=VOCAB, gradient_bf16=1),
        [logits, loss, targets, record, None, bf16(LOSS_ROWS, VOCAB)], LOSS_ROWS * VOCAB * 6)
    m, v, master, grad, param = fp32(n), fp32(n).abs_(), fp32(n), fp32(n), bf16(n)
    add("accum", "accum", attrs("vec", n=n), [m, grad], n * 12)
    add("sumsq", "sumsq", attrs("vec", n=n), [loss, grad], n * 4)
    add("adamw", "adamw", attrs("vec", n=n, n_decay=n), [master, m, v, grad, norm, record, param], n * 30)
    low_m, low_v = bf16(n), bf16(n).abs_()
    add("adamw_bf16", "adamw", attrs("vec", n=n, n_decay=n, moments=BF16), [master, low_m, low_v, grad, norm, record, param], n * 22)
    packed = lambda: torch.zeros((4 * -(-n // 256) + n + 63) // 64 * 64, dtype=torch.uint8, device="cuda")  # base/blocks8.h
    add("adamw_int8", "adamw", attrs("vec", n=n, n_decay=n, moments=kernels.I8), [master, packed(), packed(), grad, norm, record, param],
        n * 18 + n // 256 * 16)
    add("fill", "fill", attrs("copy", bytes=n * 4), [delta.clone()], n * 4)

    def add_small(name, op, a, tensors, moved):
        out[name] = (several(lib.op(op, a, tensors)), SMALL_CALLS * moved)
    for power in SMALL_GROUPS:
        size, many = 1 << power, f"{1 << power >> 20}m"
        add_small(f"sumsq_{many}", "sumsq", attrs("vec", n=size), [loss, fp32(size)], size * 4)
        add_small(f"adamw_{many}", "adamw", attrs("vec", n=size, n_decay=size),
                  [fp32(size), fp32(size), fp32(size).abs_(), fp32(size), norm, record, bf16(size)], size * 30)
    small = SMALL_ROWS * SMALL_DIM
    add_small("norm_grad_small", "norm_grad", attrs("norm", rows=SMALL_ROWS, dim=SMALL_DIM, eps=1e-5, kind=kernels.RMS, dtype=BF16),
              [bf16(SMALL_ROWS, SMALL_DIM), bf16(SMALL_ROWS, SMALL_DIM), bf16(SMALL_DIM), fp32(SMALL_ROWS, SMALL_DIM), fp32(SMALL_DIM), None,
               fp32(SMALL_ROWS // 32 * 2 * SMALL_DIM)], small * 10)
    return out


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rows", type=int, default=65536)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    lib = kernels.Kernels()
    result = {"machine_before": timing.machine(), "rows": options.rows, "kernels": {}}
    src, dst = torch.randn(1 << 29, device="cuda"), torch.empty(1 << 29, device="cuda")  # 2 GiB each
    calls = {"copy": (lambda: dst.copy_(src), 2 * src.numel() * 4)}
    calls.update({name: call for name, call in cases(lib, options.rows).items()
                  if not options.only or any(name.startswith(prefix) for prefix in options.only)})
    times = timing.take_turns({name: call for name, (call, _) in calls.items()}, options.seconds)
    rate = lambda name: calls[name][1] / times[name]["median_ms"] / 1e6
    for name in calls:
        result["kernels"][name] = dict(times[name], bytes=calls[name][1], gb_per_s=rate(name), of_copy=rate(name) / rate("copy"))
        print(f"{name:16s} {times[name]['median_ms']:8.3f} ms {rate(name):7.0f} GB/s  {rate(name) / rate('copy'):5.2f} of the copy")
    result["machine_after"] = timing.machine()
    timing.write("elements.json", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
