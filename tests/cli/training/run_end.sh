# Tests what a run says at its end: output that is lost, losses that are not finite, and a stop by a signal.
model=$data/models/sequence_single_label # 61 ids, 3 labels
program=$folder/bin/hasten

write_rows
train="train --use_cpu --disable_tqdm --model $model --data rows.safetensors --per_device_train_batch_size 4"
full() { "$program" "$@" 2>&1 >/dev/full | grep 'io.write' | sed -E 's/(cannot be written): got .*/\1/'; echo "exit code ${PIPESTATUS[0]}"; }

echo "## a full disk"
full estimate bert-base --batch 1 --seq 16 --json
full plan --techniques
full generate --model "$data/decoders/gpt2" --ids 7 19 33 --max_new_tokens 6 --json
full $train --max_steps 2 --save_strategy no --output_dir full
[ -s full/model.safetensors ] && echo "the model is saved"

echo "## a reader that ends"
"$program" $train --max_steps 200 --logging_steps 1 --save_steps 100 --output_dir unread 2>&1 | head -3 >/dev/null
echo "exit code ${PIPESTATUS[0]}"
[ -s unread/model.safetensors ] && ls unread | grep checkpoint

echo "## losses that are not finite"
hasten $train --max_steps 4 --learning_rate 1e38 --save_strategy no --output_dir diverged 2>&1 | grep -E '^hasten: warning|^exit|Saved in' | sed -E 's/^(hasten: warning: )[0-9] of/\1N of/; s/first in [A-Za-z0-9._]+:/first in NAME:/; s/of step [0-9] is (NaN|infinite)/of step N is NaN/'

# stop NAME ...: starts a run that would take hours, and stops it with SIGTERM after a few steps.
stop() {
  local name=$1
  shift
  "$program" $train --max_steps 10000000 --logging_steps 5 --output_dir "$name" "$@" >"$name.log" 2>&1 &
  local process=$!
  for _ in $(seq 600); do grep -q "'loss'" "$name.log" && break; sleep 0.1; done
  kill -TERM $process
  wait $process
  echo "exit code $?"
  grep -o 'Stopped at.*' "$name.log" | sed -E 's/step [0-9]+ of/step N of/; s/checkpoint-[0-9]+/checkpoint-N/'
}
echo "## a stop with a checkpoint"
stop saved
echo "## a stop without a checkpoint"
stop unsaved --save_strategy no
echo "## a stop with an earlier checkpoint"
stop earlier --save_strategy steps --save_steps 5 --enable_jit_checkpoint false --gradient_accumulation_steps 1 | sed 's/ from checkpoint-N$//'
echo "## a stop with checkpoints of weights"
stop weights --save_only_model
