# Tests which files of an earlier run a new run replaces, and which output_dir it refuses.
model=$data/models/sequence_single_label # 61 ids, 3 labels

write_rows
train() { hasten train --use_cpu --disable_tqdm --data rows.safetensors --max_steps 2 --save_strategy no --logging_strategy no --output_dir out "$@" 2>&1 | grep -E 'error|^exit code'; }
results() {
  ls out | grep -E '_results|predictions'
  python3 -c 'import json; print(sorted({name.split("_")[0] for name in json.load(open("out/all_results.json"))} & {"eval", "test", "train"}))'
}

echo "## results of the same model are merged"
train --model "$model" --eval_data rows.safetensors --do_train --do_predict
results
train --model out --eval_data rows.safetensors --do_eval
results
echo "## a run that fails leaves the model and its results"
train --model "$model" --overwrite_output_dir --learning_rate 1e38 --max_steps 3 --stop_on_nonfinite_loss | grep -o 'exit code.*'
results
echo "## a new model has no results of another one"
train --model "$model" --overwrite_output_dir
results
echo "## neither has the new model of a resumed run"
train --model "$model" --save_strategy steps --save_steps 1 --overwrite_output_dir --eval_data rows.safetensors --do_train --do_eval
train --model "$model" --max_steps 3 --resume_from_checkpoint true
results

echo "## a finished model"
rm -r out/checkpoint-*
sha256sum out/model.safetensors >before
train --model "$model"
ln -s out link
train --model link --overwrite_output_dir
train --model out/config.json --overwrite_output_dir
train --model "$model" --weights link/model.safetensors --overwrite_output_dir
train --model "$model" --lora_adapter link --overwrite_output_dir
sha256sum --quiet -c before && echo "the model is as it was"
train --model "$model" --overwrite_output_dir --seed 43
sha256sum --quiet -c before >/dev/null 2>&1 || echo "the model is replaced"
