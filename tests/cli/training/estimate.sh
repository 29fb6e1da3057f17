# A prediction in bytes is the same on every machine, but for the workspaces of its products; what a user mistypes is told.
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
