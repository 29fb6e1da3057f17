#!/usr/bin/env bash
# anatomy.sh HASTEN: the anatomy's page in a browser draws its charts, logs no error, fetches nothing and fits the width of a
# phone, in light and dark colours.
set -euo pipefail
hasten=$(readlink -f "$1") model=$(readlink -f "$(dirname "$0")/../oracle/data/models/sequence_single_label")
. "$(dirname "$(readlink -f "$0")")/browser.sh"

"$hasten" estimate "$model" --batch 2 --seq 16 --html predicted.html >/dev/null
"$hasten" estimate "$model" --batch 2 --seq 16 --measure --html measured.html >/dev/null
check_fetches_nothing predicted.html

for width in 1200 390; do
  for scheme in 0 1; do
    render predicted.html $width $scheme
    [ "$(grep -o '<path' dom | wc -l)" -ge 7 ] || fail "$width: no stacked chart of seven components"
    for heading in "Memory at the peak" "Memory over time" "Operations" "Operators" "What if" "Layers at the peak"; do
      grep -q "<h2>$heading</h2>" dom || fail "$width: no section '$heading'"
    done
    grep -q 'data-fits="true"' dom || fail "$width: the page is wider than the window"
  done
done
"$hasten" estimate "$model" --batch 2 --seq 16 --device cuda:t4 --html gpu.html >/dev/null
render gpu.html 390 0
grep -q '<h2>Memory of the GPU</h2>' dom || fail "a page for a GPU does not show its memory"
grep -q 'The step fits the Tesla T4' dom || fail "a page for a GPU does not show whether the step fits"
grep -q 'data-fits="true"' dom || fail "the page for a GPU is wider than a phone"
render measured.html 1200 1
grep -q '<h2>Roofline</h2>' dom || fail "a measured page has no roofline"
[ "$(grep -o '<circle' dom | wc -l)" -eq 3 ] || fail "the roofline does not show three groups"
echo ok
