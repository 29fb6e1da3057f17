# Tests the end of a run that was killed after its last checkpoint: the run that continues does what is left, and changes nothing if nothing is left.
# The files that such a kill leaves are made from those of a whole run.
model=$data/models/sequence_single_label # 61 ids, 3 labels

write_rows
options="train --use_cpu --disable_tqdm --model $model --data rows.safetensors --eval_data rows.safetensors --do_train --do_eval --do_predict --logging_strategy no --save_strategy steps --save_steps 2"

# Keeps the lines about what a run does at its end.
lines() { grep -oE '(Nothing was trained|hasten: warning: the model in|hasten: warning: .*not deleted|Predictions in).*|error\[[a-z.-]+\]|^exit code.*'; }
train() { hasten $options --per_device_train_batch_size 4 "$@" 2>&1 | lines; }
# Prints the scores of a folder, without times.
scores() { python3 -c 'import json, sys; print({name: value for name, value in sorted(json.load(open(sys.argv[1] + "/all_results.json")).items()) if name.startswith(("eval_", "test_")) and not name.endswith(("_runtime", "_per_second"))})' "$1"; }
same_results() {
  scores out | cmp - whole.scores && cmp out/predictions.safetensors whole/predictions.safetensors && (cd out && ls eval_results.json test_results.json) && echo "the results are those of the whole run"
}

echo "## a whole run"
train --output_dir out --max_steps 4
scores out | grep -oE '(eval|test)_loss'
cp -r out whole
scores whole >whole.scores
echo "## nothing is left"
train --output_dir out --max_steps 4 --resume_from_checkpoint true
diff -r out whole && echo "nothing has changed"
echo "## killed in the evaluation"
rm out/eval_results.json out/test_results.json out/predictions.safetensors
train --output_dir out --max_steps 4 --resume_from_checkpoint true
same_results
for name in model.safetensors train_results.json; do cmp out/$name whole/$name; done
grep -c '"eval_loss"' out/trainer_state.json
echo "## killed in the prediction"
rm out/predictions.safetensors
cp out/eval_results.json before
train --output_dir out --max_steps 4 --resume_from_checkpoint true
same_results
cmp out/eval_results.json before
echo "## killed before the evaluation was merged"
python3 - <<'PYTHON'
import json
results = json.load(open("out/all_results.json"))
json.dump({name: value for name, value in results.items() if not name.startswith("eval_")}, open("out/all_results.json", "w"))
PYTHON
train --output_dir out --max_steps 4 --resume_from_checkpoint true
same_results
echo "## no results are requested"
rm out/eval_results.json
train --output_dir out --max_steps 4 --resume_from_checkpoint true --do_eval false --do_predict false
ls out/eval_results.json 2>/dev/null

echo "## a continued run, killed before it saved its model"
rm -r out && cp -r whole out
train --output_dir out --max_steps 8 --resume_from_checkpoint true
cmp -s out/model.safetensors whole/model.safetensors || echo "the model is a new one"
rm -r whole.scores && cp -r out later && scores later >whole.scores
(cd whole && cp model.safetensors model_manifest.json trainer_state.json ./*_results.json predictions.safetensors ../out)
rm -r whole && mv later whole
train --output_dir out --max_steps 8 --resume_from_checkpoint true
same_results
cmp out/model.safetensors whole/model.safetensors
echo "## the folder has a later checkpoint"
rm out/eval_results.json
train --output_dir out --max_steps 4 --resume_from_checkpoint out/checkpoint-4
cmp out/model.safetensors whole/model.safetensors

echo "## the best model"
best="--output_dir best --max_steps 4 --eval_strategy steps --eval_steps 2 --load_best_model_at_end"
train $best
cp -r best whole_best
rm best/eval_results.json
train $best --resume_from_checkpoint true
python3 -c 'import json; print(json.load(open("best/trainer_state.json"))["best_model_checkpoint"])' >folder_of_best
cmp best/model.safetensors "$(cat folder_of_best)/model.safetensors"
scores whole_best >best.scores && scores best | cmp - best.scores && ls best/eval_results.json

echo "## two processes"
launch() { hasten launch -n 2 --no_config_file "$folder/bin/hasten" $options --per_device_train_batch_size 2 "$@" 2>&1 | lines; }
launch --output_dir two --max_steps 2
cp two/model.safetensors before
rm two/eval_results.json
launch --output_dir two --max_steps 2 --resume_from_checkpoint true
ls two/eval_results.json
launch --output_dir two --max_steps 2 --resume_from_checkpoint true
cmp two/model.safetensors before

echo "## results that cannot be written do not cost the model"
mkdir -p full/all_results.json/inside
train --output_dir full --max_steps 2 --save_strategy no
ls full/model.safetensors full/trainer_state.json
mkdir -p full_two/all_results.json/inside
launch --output_dir full_two --max_steps 2 --save_strategy no | sort -u
ls full_two/model.safetensors full_two/trainer_state.json
