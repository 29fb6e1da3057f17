#!/usr/bin/env python3
"""Writes 24 rows of 8 ids with one of 3 labels to rows.safetensors, for runs of the model sequence_single_label."""
import json
import struct

ROWS = 24
ids = [[5 + (row * 7 + place * 3) % 50 for place in range(8)] for row in range(ROWS)]
columns = {"input_ids": ([ROWS, 8], [id for row in ids for id in row]), "labels": ([ROWS], [row % 3 for row in range(ROWS)])}
header, body = {}, b""
for name, (shape, values) in columns.items():
    data = struct.pack(f"<{len(values)}q", *values)
    header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
    body += data
text = json.dumps(header).encode()
with open("rows.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + body)
