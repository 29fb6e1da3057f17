#!/usr/bin/env bash
# tpu.sh HASTEN ENGINE-FOLDER: the page of a TPU's account, by a CPU engine's compiler in the place of libtpu's.
set -euo pipefail
hasten=$(readlink -f "$1") model=$(readlink -f "$(dirname "$0")/../oracle/data/models/sequence_single_label")
export PYTHONPATH=$2 HASTEN_DRY_TPU_COMPILER=$2/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
. "$(dirname "$(readlink -f "$0")")/browser.sh"

# Two alternatives: there is no smaller batch, and no other optimizer.
"$hasten" estimate --tpu v5e:2x2 "$model" --batch 1 --seq 32 --optim sgd --attn_implementation eager --html good.html >good.txt 2>log || fail "$(cat log)"
grep -qE '^what if +needed' good.txt || fail "no alternatives in the text"
# The attention of TPUs does not compile here, in none of them.
"$hasten" estimate --tpu v5e:2x2 "$model" --batch 1 --seq 16 --mode inference --html bad.html >bad.txt 2>log && fail "what does not compile is no error"
fetches_nothing good.html
for width in 1200 390; do
  look good.html $width $((width > 1000))
  for heading in "Peak of each component" "Memory at the peak" "Peak in each phase" "What if"; do
    grep -q "<h2>$heading</h2>" dom || fail "$width: no section '$heading'"
  done
  for word in "the anatomy's prediction" "other tensors" "rows of 16 tokens" "not one for TPUs"; do
    grep -q "$word" dom || fail "$width: nothing of '$word'"
  done
  [ "$(grep -o 'class="bar"' dom | wc -l)" -eq 2 ] || fail "$width: not two bars"
  grep -q 'data-fits="true"' dom || fail "$width: the page is wider than the window"
done
look bad.html 390 0
for word in "<h2>Not compiled</h2>" "scaled_dot_product" "does not compile" "The program ended early"; do
  grep -q "$word" dom || fail "a page of what does not compile: nothing of '$word'"
done
grep -q 'data-fits="true"' dom || fail "a page of what does not compile is wider than a phone"
echo ok
