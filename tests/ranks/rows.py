"""Rows of token ids for the tests that train a small model."""
import array
import json
import random
import struct

IGNORED = -100


def write_rows(file, columns):
    """Writes columns of equal rows as a safetensors file of int64."""
    header, body = {}, b""
    for name, rows in columns.items():
        flat = [value for row in rows for value in row] if isinstance(rows[0], list) else rows
        shape = [len(rows)] + ([len(rows[0])] if isinstance(rows[0], list) else [])
        data = array.array("q", flat).tobytes()
        header[name] = {"dtype": "I64", "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


def texts(rows, seed, with_gaps):
    """Returns rows of 12 ids, some with padding, and a label for each row or for a part of the rows."""
    draw = random.Random(seed)
    ids, mask, labels = [], [], []
    for _ in range(rows):
        length = draw.randint(4, 12)
        words = [draw.randint(5, 60) for _ in range(length)]
        ids.append(words + [0] * (12 - length))
        mask.append([1] * length + [0] * (12 - length))
        labels.append(IGNORED if with_gaps and draw.random() < 0.3 else sum(words) % 3)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def write_ids(file, rows, seed):
    """Writes rows of 12 ids without padding, with a label for each row."""
    draw = random.Random(seed)
    ids = [[draw.randint(5, 60) for _ in range(12)] for _ in range(rows)]
    write_rows(file, {"input_ids": ids, "attention_mask": [[1] * 12] * rows, "labels": [sum(row) % 3 for row in ids]})
