#!/usr/bin/env python3
"""Loads the memory snapshots that hasten writes as PyTorch's viewer does, and compares them with the report of the same run.

    memory_snapshot.py HASTEN [torch/cuda/_memory_viz.py]
"""
import importlib.util
import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

CONFIG = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "vocab_size": 100, "hidden_size": 256,
          "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 512, "max_position_embeddings": 64}


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED  {what}")


def replay(snapshot):
    """Returns the largest numbers of live and reserved bytes, and the addresses that are live and reserved at the end."""
    alive, requested, segments = {}, {}, {}
    live = reserved = most_live = most_reserved = 0
    before = 0
    for event in snapshot["device_traces"][0]:
        action, address, size = event["action"], event.get("addr"), event["size"]
        check(event["time_us"] >= before, "the times are in order")
        before = event["time_us"]
        if action == "segment_alloc":
            check(address not in segments, "a segment is allocated once")
            segments[address] = size
            reserved += size
        elif action == "segment_free":
            check(segments.pop(address) == size, "a segment is freed with the size of its allocation")
            reserved -= size
        elif action == "alloc":
            check(address not in alive, "an address is allocated once")
            check(any(s <= address and address + size <= s + n for s, n in segments.items()), "a block lies in a segment")
            alive[address] = (size, event["frames"])
            live += size
        elif action == "free_requested":
            requested[address] = alive.pop(address)[0]
            check(requested[address] == size, "a block is freed with the size of its allocation")
            live -= size
        elif action == "free_completed":
            check(requested.pop(address) == size, "a free is completed after it was requested")
        else:
            check(action == "oom", f"the action is known, got {action}")
            check(event["device_free"] >= 0, "the number of free bytes is not negative")
        most_live, most_reserved = max(most_live, live), max(most_reserved, reserved)
    return most_live, most_reserved, alive, segments


def check_segments(snapshot, alive, segments):
    check({s["address"]: s["total_size"] for s in snapshot["segments"]} == segments, "the snapshot has the segments of the trace")
    used = {}
    for segment in snapshot["segments"]:
        check(sum(b["size"] for b in segment["blocks"]) == segment["total_size"], "blocks fill their segment")
        address = segment["address"]
        for block in segment["blocks"]:
            check(block["address"] == address, "blocks are adjacent")
            address += block["size"]
            if block["state"] == "active_allocated":
                used[block["address"]] = block["frames"]
    check(used == {address: frames for address, (_, frames) in alive.items()}, "the snapshot has the used blocks of the trace")


def check_with_viewer(viewer, snapshot):
    spec = importlib.util.spec_from_file_location("memory_viz", viewer)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check("total_reserved" in module.segsum(snapshot), "PyTorch sums the segments")
    check("TOTAL MEM" in module.trace(snapshot), "PyTorch prints the trace")
    flames = module.memory(snapshot, format_flamegraph=lambda lines: lines)
    check("bert.encoder.layer.0.attention" in flames, "PyTorch prints the layers as frames")
    check("<html>" in module.trace_plot(snapshot), "PyTorch writes the page of the viewer")


def main():
    hasten, viewer = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "config.json")
        config.write_text(json.dumps(CONFIG))
        for name, options in {"predicted": [], "measured": ["--measure"], "GPU": ["--device", "cuda:v100-16gb", "--cuda_graph", "false"],
                              "full GPU": ["--device", "cuda:t4", "--batch", "60000"]}.items():
            file = pathlib.Path(folder, name + ".pickle")
            done = subprocess.run([hasten, "estimate", str(config), "--batch", "2", "--seq", "32", "--json", "--output", str(file), *options],
                                  capture_output=True, text=True, timeout=120)
            check(done.returncode == 0, done.stdout + done.stderr)
            memory = json.loads(done.stdout)["memory"]
            snapshot = pickle.loads(file.read_bytes())
            most_live, most_reserved, alive, segments = replay(snapshot)
            check(most_live == memory["peak"], f"{name}: the peak is {memory['peak']}, got {most_live}")
            if "gpu" in memory:
                check(abs(most_reserved - memory["gpu"]["reserved"]) <= 2 << 20, f"{name}: reserved {memory['gpu']['reserved']}, got {most_reserved}")
            check_segments(snapshot, alive, segments)
            streams = {event["stream"] for event in snapshot["device_traces"][0] if event["action"] == "alloc"}
            check(streams == ({0, 1} if "gpu" in memory else {0}), f"{name}: the batches of a GPU have a stream of their own, got {streams}")
            actions = [event["action"] for event in snapshot["device_traces"][0]]
            check(("oom" in actions) == ("out_of_memory" in memory) == (name == "full GPU"), f"{name}: the run is out of memory if and only if its GPU is full")
            names = {frame["name"] for event in snapshot["device_traces"][0] for frame in event["frames"]}
            check({"bert.encoder.layer.1", "activations", "backward"} <= names, f"{name}: frames {sorted(names)}")
            if viewer:
                check_with_viewer(viewer, snapshot)
    print(f"ok      4 memory snapshots{' with ' + viewer if viewer else ''}")


main()
