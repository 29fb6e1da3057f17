# Predictions in bytes are equal on all machines except for workspaces of matrix products; mistyped arguments are reported.
model=$data/models/sequence_single_label
hasten estimate "$model" --batch 2 --seq 16 --json | python3 -c '
import json, sys
report = json.load(sys.stdin)
print("dry", report["dry"], "steps", report["steps"], "parameters", report["memory"]["parameters"])
for name in ("model_weights", "optimizer_states", "unknown"):
    print(name, report["memory"]["at_peak"][name])
print("without a formula:", report["without_formula"])'
hasten estimate "$model" --batch 2 --seq 16 --html page.html --what_if | sed -n '/^what if/,$p' | sed 's/  *[0-9].*//'
grep -c '<html' page.html
hasten estimate "$model" --seq 33
hasten estimate bert-lage
hasten estimate "$model" --precision fp8
hasten estimate "$model" --batch 0
hasten estimate "$model" --bath 4
hasten estimate
# Predictions for a GPU; none is needed.
hasten estimate bert-base --batch 8 --seq 128 --precision bf16 --device cuda:h100-80gb | sed -n '1,20p'
hasten estimate bert-large --batch 64 --device cuda:t4 | grep 'does not fit'
hasten estimate bert-base --device cuda:h100
hasten estimate bert-base --device cuda:h100-80gb --measure
hasten estimate --device cuda:a100-80gb --json -- "$(dirname "$torch")/example_01_accelerated" 2>/dev/null | grep -v '^epoch' | python3 -c '
import json, sys
report = json.load(sys.stdin)
print(report["device"], report["memory"]["gpu"]["title"], report["memory"]["peak"], report["memory"]["gpu"]["reserved"])'
hasten estimate --device cuda:a1000 -- ./train
hasten estimate "$model" --batch 2 --seq 16 --mode inference --device cuda:t4 | sed -n '1,12p'
hasten estimate "$model" --mode testing
hasten estimate --devices | head -3
# The textbook figure uses the optimizer that ran.
textbook() {
  hasten estimate "$model" --batch 2 --seq 16 --json "$@" | python3 -c '
import json, sys
textbook = json.load(sys.stdin)["memory"]["textbook"]
print("; ".join(sorted(name + ": " + each["text"] for name, each in textbook.items())))'
}
textbook
textbook --optim adamw
textbook --optim sgd
textbook --optim sgd --optim_args momentum=0.9
textbook --mode inference
hasten estimate "$model" --batch 2 --seq 16 --optim sgd | grep -c '0 B (SGD)'
