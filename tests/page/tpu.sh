#!/usr/bin/env bash
# tpu.sh HASTEN ENGINE-FOLDER: checks the page of a prediction for TPUs, with a CPU engine's compiler instead of libtpu's.
set -euo pipefail
hasten=$(readlink -f "$1") model=$(readlink -f "$(dirname "$0")/../oracle/data/models/sequence_single_label")
export PYTHONPATH=$2 HASTEN_DRY_TPU_COMPILER=$2/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
. "$(dirname "$(readlink -f "$0")")/browser.sh"

# In inference only two changes can be compared. Each of them compiles the whole model, so a comparison of training would take minutes.
"$hasten" estimate --tpu v5e:2x2 "$model" --mode inference --batch 1 --seq 32 --attn_implementation eager --html good.html >good.txt 2>log || fail "$(cat log)"
grep -q '^What if: ' good.txt || fail "the text has no comparison"
# This engine cannot compile the fused attention of TPUs, whichever change is made.
"$hasten" estimate --tpu v5e:2x2 "$model" --batch 1 --seq 16 --mode inference --html bad.html >bad.txt 2>log && fail "a program that does not compile is not an error"
check_fetches_nothing good.html
for width in 1200 390; do
  render good.html $width $((width > 1000))
  for heading in "Peak of each component" "Memory at the peak" "Peak in each phase" "What if"; do
    grep -q "<h2>$heading</h2>" dom || fail "$width: no section '$heading'"
  done
  for word in "the anatomy's prediction" "other tensors" "rows of 16 tokens" "not one for TPUs"; do
    grep -q "$word" dom || fail "$width: '$word' is missing"
  done
  [ "$(grep -o 'class="bar"' dom | wc -l)" -eq 2 ] || fail "$width: the page does not have two bars"
  grep -q 'data-fits="true"' dom || fail "$width: the page is wider than the window"
done
render bad.html 390 0
for word in "<h2>Not compiled</h2>" "scaled_dot_product" "does not compile" "The program ended early"; do
  grep -q "$word" dom || fail "the page of a failed compilation: '$word' is missing"
done
grep -q 'data-fits="true"' dom || fail "the page of a failed compilation is wider than a phone"
echo ok
