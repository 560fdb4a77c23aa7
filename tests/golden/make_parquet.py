#!/usr/bin/env python3
"""Writes the Parquet files of tests/data/test_parquet.c, and their rows as .jsonl: `make_parquet.py` (pip install pyarrow==26.0.1)."""
import datetime
import decimal
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "parquet")


def bare(x):
    """Leaves out members that are null, which rows without them have in a table."""
    if isinstance(x, dict):
        return {k: bare(v) for k, v in x.items() if v is not None}
    return [bare(v) for v in x] if isinstance(x, list) else x


def write_rows(name, rows):
    with open(os.path.join(HERE, name), "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps(bare(row), ensure_ascii=False) + "\n")


def write(name, table, **options):
    pq.write_table(table, os.path.join(HERE, name), store_schema=False, write_statistics=False, **options)


def chats():
    """Conversations with calls of tools, whose arguments differ from call to call."""
    rows = []
    for i in range(24):
        messages = [{"role": "user", "content": "Number %d, \"quoted\"\n\tand \u00e9\u20ac\U0001f600?" % i}]
        if i % 3 == 1:
            call = {"name": "add", "arguments": {"a": i, "b": 2 * i}} if i % 2 else {"name": "look", "arguments": {"city": "Paris"}}
            messages.append({"role": "assistant", "tool_calls": [{"type": "function", "function": call}]})
            messages.append({"role": "tool", "content": "it is %d" % (3 * i)})
        messages.append({"role": "assistant", "content": "It is %s." % ("so " * (i % 5))})
        rows.append({"messages": messages, "source": "book %d" % (i % 3) if i % 4 else None})
    write_rows("chats.jsonl", rows)
    table = pa.Table.from_pylist(rows)
    content = "messages.list.element.content"
    plain = {"use_dictionary": False}
    delta = dict(plain, column_encoding={content: "DELTA_BYTE_ARRAY", "messages.list.element.role": "DELTA_LENGTH_BYTE_ARRAY",
                                         "messages.list.element.tool_calls.list.element.function.arguments.a": "DELTA_BINARY_PACKED",
                                         "source": "DELTA_BYTE_ARRAY"})
    small = {"data_page_size": 64, "write_batch_size": 4}  # many pages
    for name, options in {
        "none-1-plain": dict(plain, compression="none", data_page_version="1.0", row_group_size=9),
        "none-2-dictionary": dict(small, compression="none", data_page_version="2.0"),
        "snappy-1-dictionary": {"compression": "snappy", "data_page_version": "1.0", "write_page_checksum": True},
        "snappy-2-delta": dict(delta, **small, compression="snappy", data_page_version="2.0"),
        "gzip-2-dictionary": dict(small, compression="gzip", data_page_version="2.0", row_group_size=10),
        "zstd-1-delta": dict(delta, compression="zstd", data_page_version="1.0", row_group_size=7),
        "lz4-1-plain": dict(plain, compression="lz4", data_page_version="1.0"),
        "lz4-2-delta": dict(delta, compression="lz4", data_page_version="2.0", write_page_checksum=True),
        "brotli-2-dictionary": {"compression": "brotli", "data_page_version": "2.0"},
    }.items():
        write("chats-%s.parquet" % name, table, **options)


def ids():
    """Token ids, of which some are not trained."""
    rows = []
    for i in range(40):
        n = 3 + i * 7 % 23
        tokens = [(i * 131 + k * k * 17) % 400 for k in range(n)]
        rows.append({"input_ids": tokens, "labels": [-100 if k < n // 3 else t for k, t in enumerate(tokens)]})
    write_rows("ids.jsonl", rows)
    schema = pa.schema([("input_ids", pa.list_(pa.int32())), ("labels", pa.list_(pa.int64()))])
    table = pa.Table.from_pylist(rows, schema=schema)
    for encoding in ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"]:
        write("ids-%s.parquet" % encoding.lower().split("_")[0], table, compression="zstd", use_dictionary=False,
              column_encoding={"input_ids.list.element": encoding, "labels.list.element": encoding}, data_page_size=256, write_batch_size=16)
    write("ids-dictionary.parquet", table, compression="snappy", data_page_version="2.0")


def types():
    """Each type that is read, and at the rows' level some that are left out."""
    member = pa.struct([("x", pa.int8()), ("y", pa.list_(pa.struct([("z", pa.string())])))])
    fields = {
        "text": (pa.string(), lambda i: "row %d" % i),
        "u64": (pa.uint64(), lambda i: 2**63 - 1 - i),
        "u32": (pa.uint32(), lambda i: 2**32 - 1 - i),
        "i64": (pa.int64(), lambda i: -(2**62) * (i % 3)),
        "i8": (pa.int8(), lambda i: i - 5),
        "real": (pa.float64(), lambda i: i / 3),
        "short": (pa.float32(), lambda i: i / 4),
        "truth": (pa.bool_(), lambda i: [True, False, None][i % 3]),
        "nothing": (pa.null(), lambda i: None),
        "large": (pa.large_list(pa.large_string()), lambda i: [[], ["a", None, "b"], None][i % 3]),
        "pair": (pa.list_(pa.int32(), 2), lambda i: [i, -i]),
        "deep": (pa.list_(pa.list_(pa.list_(pa.int32()))), lambda i: [[[[1, 2], []], [], [[3]]], [], [[[]], None]][i % 3]),
        "member": (member, lambda i: [None, {"x": 1, "y": None}, {"x": None, "y": [{"z": "a"}, None, {"z": None}]}][i % 3]),
        "map": (pa.map_(pa.string(), pa.int32()), lambda i: [None, [], [("a", 1), ("b", None)]][i % 3]),
        "words": (pa.dictionary(pa.int16(), pa.string()), lambda i: "word %d" % (i % 2)),
    }
    left_out = {
        "when": (pa.timestamp("us"), lambda i: datetime.datetime(2024, 1, 1 + i)),
        "day": (pa.date32(), lambda i: datetime.date(2024, 1, 1 + i)),
        "price": (pa.decimal128(10, 2), lambda i: decimal.Decimal(i)),
        "image": (pa.struct([("bytes", pa.binary()), ("path", pa.string())]), lambda i: {"bytes": b"\0\xff", "path": "p"}),
    }
    n = 9
    rows = [{k: make(i) for k, (_, make) in fields.items()} for i in range(n)]
    for row in rows:
        row["map"] = row["map"] if row["map"] is None else dict(row["map"])
    # null members of structs are left out, null elements and values of maps are kept
    with open(os.path.join(HERE, "types.jsonl"), "w", encoding="utf-8") as f:
        for row in rows:
            of_map = row["map"]
            row = bare(row)
            if of_map is not None:
                row["map"] = of_map
            f.write(json.dumps(row) + "\n")
    every = {**left_out, **fields}
    table = pa.table({k: pa.array([make(i) for i in range(n)], type=t) for k, (t, make) in every.items()})
    write("types.parquet", table, compression="snappy")
    write("types-2.parquet", table, compression="zstd", data_page_version="2.0", use_dictionary=["words"], row_group_size=4,
          column_encoding={"truth": "RLE", "real": "BYTE_STREAM_SPLIT", "short": "BYTE_STREAM_SPLIT", "i64": "DELTA_BINARY_PACKED"})
    write("empty.parquet", pa.table({"text": pa.array([], type=pa.string())}))
    write("time.parquet", pa.table({"text": pa.array([datetime.datetime(2024, 1, 1)], type=pa.timestamp("ms"))}))
    member = pa.struct([("role", pa.string()), ("content", pa.string()), ("at", pa.timestamp("ms"))])
    write("nested-time.parquet", pa.table({"messages": pa.array([[{"role": "user", "content": "a"}]], type=pa.list_(member))}))


def long():
    """Few bytes that are many rows: 64 MiB of text, all in one group of rows."""
    table = pa.table({"text": ["%d " % (i % 7) + "In the beginning was the word. " * 33 for i in range(65536)]})
    write("long.parquet", table, compression="zstd", row_group_size=65536)


os.makedirs(HERE, exist_ok=True)
chats()
ids()
types()
long()
