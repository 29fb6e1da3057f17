"""safetensors_differential.py PROGRAM COUNT SEEDS: mutates safetensors files and compares hasten with Python's package safetensors.

PROGRAM is safetensors_stream. hasten may refuse a file that the package accepts, for the reasons that docs/formats.md lists. It must not
accept a file that the package refuses. The package is the one that tools/fetch_safetensors.sh has put into the cache, or otherwise the one of
this Python or of the Python that HASTEN_REFERENCE_PYTHON names.
"""

import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path

caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
package = Path(os.environ.get("HASTEN_CACHE") or caches / "hasten") / "safetensors-0.8.0"
reference = os.environ.pop("HASTEN_REFERENCE_PYTHON", None)
if package.is_dir():
    sys.path.insert(0, str(package))
elif reference:  # its python may be a link to this one
    os.execv(reference, [reference, *sys.argv])
try:
    from safetensors import SafetensorError, deserialize
except ImportError:
    print("skipped: Python's package safetensors is missing (tools/fetch_safetensors.sh)")
    sys.exit(0)

program, count, seeds = sys.argv[1], int(sys.argv[2]), sorted(Path(sys.argv[3]).rglob("*.safetensors"))
random.seed(23)
files = [path.read_bytes() for path in seeds if path.stat().st_size < 20_000]
NUMBERS = [0, 1, 2, 3, 4, 8, 15, 16, 255, 2**31 - 1, 2**31, 2**32, 2**53, 2**57, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, 0.5, 1e300]
DTYPES = ["F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U8", "BOOL", "F8_E4M3", "F4", "C64", "U64", "f32", "", "F128"]


def with_header(header, body, pad=0):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    text += b" " * pad
    return struct.pack("<Q", len(text)) + text + body


def mutated_bytes(data):
    data = bytearray(data)
    for _ in range(random.choice([1, 1, 1, 2, 5])):
        if not data:
            return bytes(data)
        at = random.randrange(min(len(data), random.choice([8, 200, len(data)])))
        kind = random.randrange(5)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at] = random.randrange(256)
        elif kind == 2:
            del data[at:at + random.choice([1, 1, 4, 100])]
        elif kind == 3:
            data[at:at] = bytes(random.randrange(256) for _ in range(random.choice([1, 1, 4])))
        else:
            data[at:at] = data[at:at + random.choice([1, 8, 40])]
    if random.random() < 0.5 and len(data) >= 8:  # corrects the length of the header
        end = bytes(data).rfind(b"}")
        if end >= 8:
            data[:8] = struct.pack("<Q", end - 7)
    return bytes(data)


def mutated_header(data):
    size, = struct.unpack("<Q", data[:8])
    try:
        header = json.loads(data[8:8 + size])
    except ValueError:
        return mutated_bytes(data)
    body = data[8 + size:]
    names = [name for name in header if name != "__metadata__"]
    if not names:
        return mutated_bytes(data)
    for _ in range(random.choice([1, 1, 2])):
        entry = header[random.choice(names)]
        kind = random.randrange(7)
        if kind == 0 and entry["shape"]:
            entry["shape"][random.randrange(len(entry["shape"]))] = random.choice(NUMBERS)
        elif kind == 1:
            entry["shape"].insert(random.randrange(len(entry["shape"]) + 1), random.choice(NUMBERS))
        elif kind == 2:
            entry["data_offsets"][random.randrange(2)] = random.choice(NUMBERS + [len(body), len(body) + 1])
        elif kind == 3:
            entry["dtype"] = random.choice(DTYPES)
        elif kind == 4:
            entry[random.choice(["dtype", "shape", "data_offsets", "more"])] = random.choice([None, [], {}, 1, "F32", [1, 2]])
            return with_header(header, body)
        elif kind == 5:
            entry["data_offsets"] = list(header[random.choice(names)]["data_offsets"])
        else:
            header["__metadata__"] = random.choice([{}, {"a": "b"}, {"a": 1}, [], None, {"a": None}, "x"])
    return with_header(header, body + b"\0" * random.choice([0, 0, 0, 1, 8]), random.choice([0, 0, 1, 7]))


def is_accepted(data):
    try:
        deserialize(data)
        return True
    except (SafetensorError, ValueError, OverflowError):
        return False


def mutation(number):
    data = random.choice(files)
    return data if number < len(files) else random.choice([mutated_bytes, mutated_header])(data)


# The program gets many files at a time, because a switch between the two processes takes longer than reading a file. It reads each file whole
# before it answers with one byte, so its answers to a batch fit into the pipe while it still gets files.
BATCH = 1000
stream = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
accepted = stricter = laxer = 0
for begin in range(0, count, BATCH):
    batch = [mutation(number) for number in range(begin, min(begin + BATCH, count))]
    stream.stdin.write(b"".join(struct.pack("<Q", len(data)) + data for data in batch))
    stream.stdin.flush()
    answers = stream.stdout.read(len(batch))
    if len(answers) != len(batch):
        sys.exit(f"{program} ended after {begin + len(answers)} files, with {stream.wait()}")
    for data, answer in zip(batch, answers):
        own, theirs = answer == 1, is_accepted(data)
        accepted += own and theirs
        stricter += theirs and not own
        if own and not theirs:
            laxer += 1
            Path(f"laxer-{laxer}.safetensors").write_bytes(data)
            print(f"hasten accepts what the package refuses: laxer-{laxer}.safetensors")
stream.stdin.close()
print(f"{count} files: both accept {accepted}, both refuse {count - accepted - stricter - laxer}, only hasten refuses {stricter}, only the package refuses {laxer}")
# The comparison means nothing if nearly every file is refused, so the test then fails.
sys.exit(1 if laxer or stream.wait() or accepted < count // 100 else 0)
