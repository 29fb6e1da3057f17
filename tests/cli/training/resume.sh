# Tests resuming: reports and errors, the checkpoints that remain, and finished runs, which have nothing left to do and write nothing.
model=$data/models/sequence_single_label # 61 ids, 3 labels, 32 positions

write_rows

# Keeps only hasten's notices and errors about the run.
train() { hasten train --use_cpu --disable_tqdm --model "$model" --data rows.safetensors --output_dir out --per_device_train_batch_size 4 --logging_strategy no "$@" 2>&1 >/dev/null | grep -E '^hasten: |^hasten train: |^Nothing'; }
folders() { ls out | grep checkpoint; }
sums() { (cd out && sha256sum model.safetensors config.json train_results.json all_results.json trainer_state.json training_args.json) }

echo "## a run of 12 steps"
train --max_steps 12 --save_steps 2
folders
sums >before

echo "## another gradient_accumulation_steps"
train --max_steps 12 --save_steps 2 --resume_from_checkpoint out/checkpoint-8 --gradient_accumulation_steps 2
echo "## nothing left to do"
train --max_steps 12 --save_steps 2 --resume_from_checkpoint true
train --max_steps 5 --save_steps 2 --resume_from_checkpoint out/checkpoint-8 --do_train --do_eval --eval_data rows.safetensors
sums | cmp - before && echo "model and results are as they were"

echo "## the model is missing"
rm out/model.safetensors out/train_results.json
train --max_steps 12 --save_steps 2 --resume_from_checkpoint true
sums | grep -c ' model.safetensors$'
ls out/train_results.json

echo "## back to step 4"
train --max_steps 9 --save_steps 2 --resume_from_checkpoint out/checkpoint-4 --save_total_limit 2 --seed 43 --learning_rate 1e-4
folders
train --max_steps 10 --save_steps 2 --resume_from_checkpoint true --save_total_limit 2 --seed 43 --learning_rate 1e-4
folders

echo "## other data"
train --max_steps 12 --resume_from_checkpoint true --train_sampling_strategy sequential | grep -v ' and was '

echo "## a damaged best checkpoint"
rm -r out
best() { train --save_steps 2 --eval_strategy steps --eval_steps 2 --eval_data rows.safetensors --load_best_model_at_end --learning_rate 0 "$@" | sed 's/ (loss .*//; s/ last step: .*/ last step/'; }
best --max_steps 4
echo more >>out/checkpoint-2/model.safetensors
rm out/model.safetensors
best --max_steps 6 --resume_from_checkpoint true
ls out/model.safetensors
