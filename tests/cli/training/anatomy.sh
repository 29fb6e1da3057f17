# An unchanged program is measured and predicted, and both report the same bytes. The program ends after --steps.
program=$(dirname "$torch")/example_01_accelerated
weights='import json, sys
report = json.load(sys.stdin)
memory = report["memory"]
print("dry", report["dry"], "steps", report["steps"], "peak", memory["peak"], "before", memory["before"], "unknown", memory["at_peak"]["unknown"])'
hasten anatomy --json "$program" 2>/dev/null | grep -v '^epoch' | python3 -c "$weights" >measured
hasten estimate --json -- "$program" 2>/dev/null | grep -v '^epoch' | python3 -c "$weights" >predicted
cut -d' ' -f1-4 measured predicted
[ "$(cut -d' ' -f5- measured)" = "$(cut -d' ' -f5- predicted)" ] && echo "the same bytes"
hasten anatomy --steps 1 --output page.html "$program" 2>&1 | tail -1
grep -c '<html' page.html
hasten anatomy
hasten anatomy --stepz 3 "$program"
hasten anatomy --steps 0 "$program"
hasten anatomy ./missing
hasten anatomy ls missing # closes its standard error before it ends
hasten estimate -- bash -c 'true; exit 3'
hasten anatomy bash -c '"$0" >/dev/null 2>&1; echo the shell has ended' "$program"
hasten estimate --help -- | head -1
