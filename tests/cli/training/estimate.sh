# Predictions in bytes are equal on all machines except for workspaces of matrix products. Mistyped arguments are reported.
model=$data/models/sequence_single_label
hasten estimate "$model" --batch 2 --seq 16 --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
print("dry", report["dry"], "steps", report["steps"], "parameters", report["memory"]["parameters"])
for name in ("model_weights", "optimizer_states", "unknown"):
    print(name, report["memory"]["at_peak"][name])
print("without a formula:", report["without_formula"])'
hasten estimate "$model" --batch 2 --seq 16 --html page.html --what_if --json | python3 -c '
import json, sys
print(*(each["name"] for each in json.load(sys.stdin)["what_if"]["changes"]))'
grep -c '<html' page.html
# Both commands show the same table. The prediction is for a GPU, because the times of operators on the CPU are measured.
hasten estimate "$model" --batch 4 --seq 16 --device cuda:t4 --what_if | sed -n '/^What if: /,/^Note/{/^Note/d; s/^What if: //; p}' >by_estimate
hasten plan --what_if "$model" --batch 4 --seq 16 --device cuda:t4 | cmp - by_estimate && echo "the tables are equal"
hasten estimate "$model" --seq 33
hasten estimate bert-lage
hasten estimate "$model" --precision fp8
hasten estimate "$model" --batch 0
hasten estimate "$model" --bath 4
hasten estimate
# Predictions for a GPU work on a machine without one.
hasten estimate bert-base --batch 8 --seq 128 --precision bf16 --device cuda:h100-80gb | sed -n '1,21p'
hasten estimate bert-base --batch 8 --seq 128 --precision fp16 --device cuda:v100-16gb | grep -E '^(model weights|optimizer states|Roofline)'
hasten estimate bert-base --batch 8 --seq 128 --tf32 true --device cuda:a100-80gb | grep -E '^Roofline'
hasten estimate bert-base --batch 8 --seq 128 --tf32 true --device cuda:t4
hasten estimate bert-large --batch 64 --device cuda:t4 | grep 'does not fit'
hasten estimate bert-base --device cuda:h100
hasten estimate bert-base --device cuda:h100-80gb --measure
hasten estimate --device cuda:a100-80gb --json -- "$(dirname "$torch")/example_01_accelerated" 2>/dev/null | grep -v '^epoch' | python3 -c '
import json, sys
report = json.load(sys.stdin)
print(report["device"], report["memory"]["gpu"]["title"], report["memory"]["peak"], report["memory"]["gpu"]["reserved"])'
hasten estimate --device cuda:a1000 -- ./train
hasten estimate "$model" --batch 2 --seq 16 --mode inference --device cuda:t4 | sed -n '1,13p'
hasten estimate "$model" --mode testing
hasten estimate --devices | head -3
# The measured memory equals the predicted memory in each precision.
for arguments in '--precision fp16' '--weights_dtype bfloat16' '--weights_dtype bfloat16 --optim_args state_dtype=bfloat16'; do
  for how in '' --measure; do
    # shellcheck disable=SC2086
    hasten estimate "$model" --batch 4 --seq 16 --num_threads 1 --json $arguments $how | python3 -c '
import json, sys
memory = json.load(sys.stdin)["memory"]
print(memory["peak"], memory["at_peak"])' >"peak$how"
  done
  cmp peak peak--measure && echo "$arguments: equal"
done
# The textbook figure uses the optimizer that ran.
textbook() {
  hasten estimate "$model" --batch 2 --seq 16 --json "$@" | python3 -c '
import json, sys
textbook = json.load(sys.stdin)["memory"]["textbook"]
print("; ".join(sorted(name + ": " + each["text"] for name, each in textbook.items())))'
}
textbook
textbook --optim adamw
textbook --optim_args state_dtype=bfloat16
textbook --optim sgd
textbook --optim sgd --optim_args momentum=0.9
textbook --mode inference
hasten estimate "$model" --batch 2 --seq 16 --optim sgd | grep -c '0 B (SGD)'
# Predictions for decoders and for text generation.
decoder=$data/decoders/llama3
for mode in training inference generate; do
  hasten estimate "$decoder" --batch 2 --seq 16 --mode $mode $([ $mode = generate ] && echo --new_tokens 20 --beams 3) --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
print(report["memory"]["parameters"], {name: size for name, size in report["memory"]["at_peak"].items() if name in ("model_weights", "functionality")})' || true
done
hasten estimate "$decoder" --batch 2 --seq 16 --precision bf16 --device cuda:h200 | sed -n '1,3p'
hasten estimate "$decoder" --batch 2 --seq 16 --mode generate --beams 3 --new_tokens 60
hasten estimate "$decoder" --beams 3
hasten estimate "$model" --mode generate --seq 8 --new_tokens 8
