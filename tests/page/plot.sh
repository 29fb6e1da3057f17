#!/usr/bin/env bash
# plot.sh HASTEN: the page of hasten plot in a browser draws a line for each run in each chart, logs no error, fetches nothing and
# fits the width of a phone.
set -euo pipefail
hasten=$(readlink -f "$1")
. "$(dirname "$(readlink -f "$0")")/browser.sh"

for run in a b; do
  mkdir -p logs/$run
  for step in 0 10 20 30; do
    value=$step.5; [ $step != 20 ] || value=null
    echo "{\"step\": $step, \"train/loss\": $value, \"eval/loss\": 1}"
  done >logs/$run/metrics.jsonl
done
"$hasten" plot logs --output plot.html >/dev/null
"$hasten" plot logs --output smooth.html --log_scale --smoothing 0.6 --curves train/loss >/dev/null
check_fetches_nothing plot.html

for width in 1200 390; do
  for scheme in 0 1; do
    render plot.html $width $scheme
    # A null value splits a loss into a line of two points and a single point.
    [ "$(grep -o '<polyline' dom | wc -l)" -eq 4 ] || fail "$width: not a line for each run and curve"
    [ "$(grep -o '<circle' dom | wc -l)" -eq 2 ] || fail "$width: no point after the missing value"
    for heading in train/loss eval/loss; do
      grep -q "<h2>$heading</h2>" dom || fail "$width: no chart '$heading'"
    done
    grep -q 'data-fits="true"' dom || fail "$width: the page is wider than the window"
  done
done
render smooth.html 1200 1
[ "$(grep -o '<polyline' dom | wc -l)" -eq 4 ] || fail "a smoothed chart does not show the logged values too"
! grep -q '<h2>eval/loss</h2>' dom || fail "--curves does not select a curve"
echo ok
