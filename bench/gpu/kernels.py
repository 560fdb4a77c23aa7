"""Calls ltrain's CUDA kernels from Python (ctypes) on PyTorch tensors. Run as a program, it checks these layouts against C's."""
import ctypes
import json
import os
import sys

BUILD = os.environ.get("LTRAIN_GPU_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build-gpu"))

F32, BF16, I8 = 0, 1, 2
OPS = ["copy", "fill", "embed", "embed_grad", "scatter", "put_columns", "take_columns", "norm", "norm_grad", "gemm", "bias", "bias_grad", "add", "rope", "swiglu",
       "swiglu_grad", "gelu", "gelu_grad", "route", "permute", "experts_keep", "experts", "experts_grad", "gated", "gated_grad",
       "combine", "arrive", "spread", "route_grad", "attn_fwd", "attn_bwd", "attn_delta", "heads_join", "heads_split", "attn_merge", "attn_sink",
       "attn_sink_grad", "conv", "conv_grad", "decay", "decay_grad", "scan", "scan_grad", "scan_sum", "scan_grad_sum", "scan_fold", "cast", "multiply", "dequantise", "columns", "dropout", "loss", "accum", "sumsq", "clip", "adamw", "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "exchange", "shift", "deal", "collect", "dispatch", "return"]
RMS, LAYER = 0, 1
DETERMINISTIC, FAST = 0, 1
i64, i32, f32 = ctypes.c_int64, ctypes.c_int32, ctypes.c_float


def fields(types):
    """A ctypes structure type from (type, 'name name ...') pairs."""
    class layout(ctypes.Structure):
        _fields_ = [(name, t) for t, names in types for name in names.split()]
    return layout


class Attrs(ctypes.Union):
    """struct op_attrs"""
    _fields_ = [
        ("copy", fields([(i64, "bytes")])),
        ("embed", fields([(i64, "rows dim vocab max_pos"), (i32, "dtype accumulate")])),
        ("norm", fields([(i64, "rows dim"), (f32, "eps"), (i32, "kind dtype accumulate")])),
        ("bias", fields([(i64, "rows dim"), (i32, "dtype y_type accumulate"), (i64, "ld")])),
        ("add", fields([(i64, "rows dim"), (i32, "dtype")])),
        ("rope", fields([(i64, "rows"), (i32, "heads head_dim x_type inverse")])),
        ("act", fields([(i64, "rows dim"), (i32, "dtype kind")])),
        ("attn", fields([(i64, "sq sk q0 k0"), (i32, "hq hk head_dim dtype accumulate"), (f32, "scale cap"), (i32, "value_dim")])),
        ("loss", fields([(i64, "rows vocab"), (i32, "gradient gradient_bf16")])),
        ("route", fields([(i64, "rows"), (i32, "experts k kind normalise groups group_k accumulate parts"), (f32, "scale eps least aux")])),
        ("experts", fields([(i64, "rows in out"), (i32, "experts first count per transposed x_type w_type y_type result gathers")])),
        ("gated", fields([(i64, "rows dim width"), (i32, "k experts dtype kind interleaved"), (f32, "limit alpha")])),
        ("combine", fields([(i64, "rows dim"), (i32, "k experts y_type dtype accumulate")])),
        ("conv", fields([(i64, "rows"), (i32, "cols ld first width silu dtype accumulate")])),
        ("scan", fields([(i64, "rows"), (i32, "kind heads groups key_dim value_dim q_first k_first v_first ld dtype accumulate"), (f32, "scale eps")])),
        ("fold", fields([(i64, "pieces"), (i32, "heads key_dim value_dim transposed")])),
        ("heads", fields([(i64, "rows"), (i32, "heads head_dim dtype")])),
        ("cast", fields([(i64, "n"), (i32, "y_type x_type")])),
        ("vec", fields([(i64, "n n_decay first share"), (i32, "low_precision moments")])),
        ("words", i64 * 10),
    ]


Device = fields([(ctypes.c_int, "capability processors"), (i64, "shared_bytes"), (ctypes.c_int, "mode")])  # struct attn_cuda
Record = fields([(f32, "inv_targets clip lr weight_decay beta1 beta2 eps bias1 bias2"), (i32, "rounding dropout0 dropout1 sequence member0 member1 member2")])
NormResult = fields([(ctypes.c_double, "norm"), (f32, "factor"), (i32, "skip")])


def check_layout(path):
    """None, or what differs between these layouts and those that bench/gpu/layout.c printed."""
    with open(path) as f:
        wanted = json.load(f)
    ours = {"op_attrs": ctypes.sizeof(Attrs), "attn_cuda": ctypes.sizeof(Device), "step_record": ctypes.sizeof(Record),
            "norm_result": ctypes.sizeof(NormResult), "OP_EMBED_GRAD": OPS.index("embed_grad"),
            "OP_ATTN_FWD": OPS.index("attn_fwd"), "OP_ATTN_DELTA": OPS.index("attn_delta"), "OP_ADAMW": OPS.index("adamw"), "OP_COUNT": len(OPS)}
    plain = {"attn_cuda": Device, "norm_result": NormResult, "step_record": Record}
    for name in wanted:
        if "." in name:
            outer, member = name.split(".")
            layout = plain.get(outer) or dict(Attrs._fields_)[outer]
            ours[name] = getattr(layout, member).offset
    different = [f"{n}: {ours.get(n)} here, {w} in C" for n, w in wanted.items() if ours.get(n) != w]
    return ", ".join(different) or None


class Kernels:
    """The library, its tables, and the current device."""

    def __init__(self, library=os.path.join(BUILD, "libltrain-cuda.so")):
        import torch
        self.torch = torch
        self.lib = ctypes.CDLL(library)
        self.lib.status_message.restype = ctypes.c_char_p
        self.table = (ctypes.c_void_p * len(OPS))()
        self.lib.ops_cuda_kernels(self.table)
        self.lib.recurrence_cuda_kernels(self.table)
        self.lib.recurrence_cuda_workspace_bytes.restype = i64
        self.entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Attrs), ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
        self.lib.attention_cuda_workspace_bytes.restype = i64
        major, minor = torch.cuda.get_device_capability()
        properties = torch.cuda.get_device_properties(0)
        self.device = Device(capability=10 * major + minor, processors=properties.multi_processor_count,
                             shared_bytes=properties.shared_memory_per_block_optin, mode=DETERMINISTIC)

    def stream(self):
        return ctypes.c_void_p(self.torch.cuda.current_stream().cuda_stream)

    def pointers(self, tensors):
        """Addresses of tensors (None: absent), which must be contiguous. The array must outlive the call only."""
        for t in tensors:
            assert t is None or t.is_contiguous()
        return (ctypes.c_void_p * len(tensors))(*[None if t is None else t.data_ptr() for t in tensors])

    def check(self, status, what):
        if status != 0:
            raise RuntimeError(f"{what}: {self.lib.status_message().decode()}")

    def op(self, name, attrs, tensors):
        """A function that enqueues the op on the current stream."""
        entry, arg = self.entry(self.table[OPS.index(name)]), self.pointers(tensors)

        def run(keep=tensors):  # the default argument keeps the tensors alive
            self.check(entry(ctypes.byref(attrs), arg, self.stream()), name)
        return run

    def for_capability(self, capability, mode=DETERMINISTIC):
        """This device, as if it were of another capability: 80 chooses the kernels of sm_80 on a Hopper."""
        return Device(capability=capability, processors=self.device.processors, shared_bytes=self.device.shared_bytes, mode=mode)

    def workspace(self, kind, attrs, device):
        n = self.lib.attention_cuda_workspace_bytes(OPS.index(kind), ctypes.byref(attrs), ctypes.byref(device))
        return self.torch.full((max(int(n), 16),), 0xff, dtype=self.torch.uint8, device="cuda")  # NaN

    def recurrence_workspace(self, kind, attrs):
        """Scratch bytes of an op of linear attention."""
        return int(self.lib.recurrence_cuda_workspace_bytes(OPS.index(kind), ctypes.byref(attrs)))

    def attention(self, kind, attrs, tensors, device):
        """kind: attn_fwd or attn_bwd, tensors without the workspace. Returns a function that enqueues it."""
        tensors = tensors + [self.workspace(kind, attrs, device)]
        arg = self.pointers(tensors)
        call = self.lib.attention_cuda_forward if kind == "attn_fwd" else self.lib.attention_cuda_backward

        def run(keep=tensors):
            self.check(call(ctypes.byref(attrs), arg, ctypes.byref(device), self.stream()), kind)
        return run


def attention_attrs(sq, sk, hq, hk, head_dim, q0=0, k0=0, accumulate=0, cap=0.0, value_dim=0):
    a = Attrs()
    a.attn.sq, a.attn.sk, a.attn.q0, a.attn.k0 = sq, sk, q0, k0
    a.attn.hq, a.attn.hk, a.attn.head_dim, a.attn.dtype = hq, hk, head_dim, BF16
    a.attn.accumulate, a.attn.scale, a.attn.cap = accumulate, head_dim ** -0.5, cap
    a.attn.value_dim = value_dim
    return a


def delta_of(lib, o, do):
    """A function that computes attention's delta from o and do [rows, heads, head_dim], and the tensor it is put into."""
    a, delta = Attrs(), lib.torch.full(o.shape[:2], float("nan"), device="cuda")
    a.heads.rows, a.heads.heads, a.heads.head_dim, a.heads.dtype = *o.shape, BF16
    return lib.op("attn_delta", a, [delta, o, do]), delta


if __name__ == "__main__":
    if "--help" in sys.argv:
        print(__doc__)
        sys.exit()
    problem = check_layout(os.path.join(BUILD, "layout.json"))
    if problem:
        sys.exit(f"bench/gpu/kernels.py lays structures out differently: {problem}")
    print("layouts agree with C's")
