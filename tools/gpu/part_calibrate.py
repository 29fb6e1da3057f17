"""The rates of the GPU, for the time model."""
import json

from cases import Case, Failed

NAME = "calibrate"
SECONDS = 180
ABOUT = "about 300 products, attention, norms, element-wise operators and copies in fp32, TF32, bf16, fp16; attention in each of LibTorch's kernels"


def cases(context):
    return [Case("gpu_calibration", context.small(175, 30), calibrate, many=True)]


def calibrate(context, add):
    """Records each line of the program as it comes."""
    limit = context.left() - 8
    process = context.start([context.program("gpu_calibration"), "--device", context.device, "--gpu", context.gpu, "--seconds", f"{limit:.0f}",
                             *(["--small"] if context.on_cpu else [])])
    code, text = context.wait(process), context.text_of(process)
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    for line in lines:
        name = f"{line.get('name', line['kind'])} {line.get('shape', '')} {line.get('format', '')}".strip()
        failed = line["kind"] == "failed"
        add(name, "failed" if failed else "ok", line.get("seconds", 0.0), line.get("error", ""), line)
    if code != 0 or not any(line["kind"] == "shares" for line in lines):
        raise Failed(f"gpu_calibration ended with {code} after {len(lines)} lines: {context.last_line(process)}")
    return {"kind": "run", "calls": len(lines) - 1}
