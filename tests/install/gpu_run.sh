#!/usr/bin/env bash
# Runs every part of the kit for a GPU on the CPU, so that a mistake in the kit does not waste time on a GPU. $1 is the build tree, and $2 is a
# LibTorch folder that replaces the torch of a Python.
set -euo pipefail
build=$1 torch=$2 root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }
"$root/tools/gpu_pack.sh" "$build" "$work/kit" 2>"$work/log" || fail "$(cat "$work/log")"
mkdir "$work/site"
ln -s "$torch" "$work/site/torch"
# The kit must work without the source tree.
cd "$work"
export PYTHONPATH=$work/site OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive
kit/run --list >log || fail "$(cat log)"
for part in tests ranks memory waits calibrate speed graphs faults; do grep -q "^$part " log || fail "--list leaves out $part"; done
kit/run no_such_part >log 2>&1 && fail "an unknown part was accepted"
grep -q "got part 'no_such_part'" log || fail "$(cat log)"

kit/run --device cpu --output results >log 2>&1 || { cat log results/summary.md; fail "a case does not hold on the CPU"; }
python3 kit/gpu/records.py --check results/results.jsonl || fail "a record is not as described"
for part in tests ranks memory waits calibrate speed graphs faults; do
  grep -q "\"part\": \"$part\", .*\"status\": \"ok\"" results/results.jsonl || fail "no case of $part ran: $(cat log)"
  grep -q "^## $part" results/summary.md || fail "the summary leaves out $part"
done
grep -q 'kShares' results/summary.md || fail "the summary has no row for the time model"
grep -q '^| BERT | 2x2x16x8 masked dropout | float32 |' results/summary.md || fail "the summary does not compare the kernels of attention"

if [ -e "$root/.git" ] && git -C "$root" rev-parse HEAD >/dev/null 2>&1; then
  grep -qE '^[0-9a-f]{12}(-dirty)?$' kit/gpu/commit || fail "the kit does not name its commit: $(cat kit/gpu/commit)"
fi
grep -q "\"part\": \"machine\", .*\"commit\": \"$(cat kit/gpu/commit)\"" results/results.jsonl || fail "the record of the machine does not name the commit"

# Only cases that depend on this machine's Python may be skipped.
grep '"status": "skipped"' results/results.jsonl | grep -v '"part": "speed".*hugging face' && fail "a case was skipped"

# The waits in a trace with CUDA calls are counted, and a trace without kernels is refused.
PYTHONPATH=kit/gpu python3 - <<'END' || fail "the waits of a trace are counted wrongly"
from cases import Failed
from part_waits import waits_of
event = lambda cat, name: {"cat": cat, "name": name}
launch, operator = event("cuda_runtime", "cudaLaunchKernel"), event("cpu_op", "aten::add")
trace = {"traceEvents": [operator, launch, event("cuda_runtime", "cudaStreamSynchronize"), event("kernel", "cudaStreamSynchronize"),
                         event("cuda_runtime", "cudaMemcpyAsync"), event("cuda_runtime", "cudaDeviceSynchronize"), operator, {"name": "no category"}]}
found = waits_of(trace, 2, is_gpu=True)
assert found["waits_per_step"] == 0.5 and found["device_waits"] == 1 and found["kernels_per_step"] == 0.5, found
for cuda, events in ((True, [operator]), (False, [launch])):
    try:
        waits_of({"traceEvents": events}, 2, is_gpu=cuda)
        raise SystemExit("a trace without operators or kernels was accepted")
    except Failed:
        pass
END

# The kernels and copies of a trace are added up, and a trace of a GPU without kernels is refused.
PYTHONPATH=kit/gpu python3 - <<'END' || fail "the kernels of a trace are added up wrongly"
from cases import Failed
from part_speed import kernels_of
event = lambda cat, name, begin, duration: {"cat": cat, "name": name, "ph": "X", "ts": begin, "dur": duration}
trace = {"traceEvents": [event("cpu_op", "aten::mm", 0, 900), event("kernel", "gemm", 100, 40), event("kernel", "gemm", 200, 60),
                         event("gpu_memcpy", "Memcpy HtoD", 90, 5), event("kernel", "norm", 300, 10), {"name": "no category"}]}
found = kernels_of(trace, is_gpu=True)
assert found["kernels"] == 3 and found["copies"] == 1 and found["different_kernels"] == 2, found
assert abs(found["kernel_seconds"] - 110e-6) < 1e-12 and abs(found["copy_seconds"] - 5e-6) < 1e-12 and abs(found["gpu_span_seconds"] - 220e-6) < 1e-12, found
assert found["largest_kernels"] == "0.100 ms in 2 of gemm; 0.010 ms in 1 of norm", found
none = {"traceEvents": trace["traceEvents"][:1]}
assert kernels_of(none, is_gpu=False)["kernels"] == 0
try:
    kernels_of(none, is_gpu=True)
    raise SystemExit("a trace without kernels was accepted")
except Failed:
    pass
END
grep -q '"case": "bert 4x12 fp32, kernels of hasten".*"status": "ok".*"kernel_seconds"' results/results.jsonl || fail "the kernels of a step have no record"

# A record that does not match its description is refused. The results of an interrupted run are kept.
sed 's/"status": "ok"/"status": "good"/' results/results.jsonl >bad.jsonl
python3 kit/gpu/records.py --check bad.jsonl >log && fail "a wrong status was accepted"
kit/run memory --device cpu --output interrupted >log 2>&1 &
run=$!
until grep -qs '"part": "memory"' interrupted/results.jsonl; do
  kill -0 $run 2>/dev/null || fail "the run ended: $(cat log)"
  sleep 0.1
done
kill -INT $run 2>/dev/null || true
wait $run || true
python3 kit/gpu/records.py --check interrupted/results.jsonl || fail "an interrupted run left a broken record"
grep -q '^## memory' interrupted/summary.md || fail "an interrupted run left no summary"
