# The effect of a file's labels on a run: its loss, its scores, and the names in the saved model.
model=$data/models/sequence_single_label # 61 ids, 3 labels without names

# folder NAME: copies the model and adds a vocabulary.
folder() {
  cp -r "$model" "$1"
  { printf '[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'; for i in $(seq 56); do echo "word$i"; done; } >"$1/vocab.txt"
}
# labels FILE LABEL ...: writes a table with these labels and a word for each.
labels() {
  local file=$1 i=0
  shift
  printf 'text\tlabel\n' >"$file"
  for label in "$@"; do printf 'word%d\t%s\n' $((++i)) "$label" >>"$file"; done
}
quiet="--use_cpu --disable_tqdm --log_level error --save_strategy no --overwrite_output_dir"
train() { hasten train $quiet --model texts --max_steps 1 --logging_steps 1 --output_dir out "$@" 2>&1 | grep -E 'error|new weights|^exit'; }
scores() { hasten train $quiet --do_eval --output_dir scored "$@" 2>&1 | grep -E 'error|^exit|eval_accuracy' | tr -s ' '; }
saved() { python3 -c '
import json, sys
config = json.load(open("out/config.json"))
names = config.get("id2label", {})
print(config.get("problem_type"), [names[key] for key in sorted(names, key=int)])'; }
loss() { python3 -c 'import json; print("the loss is above 100:", json.load(open("out/train_results.json"))["train_loss"] > 100)'; }
folder texts

echo "## regression"
labels numbers.tsv 0.0 0.25 2.5 5.0 100.0
train --data numbers.tsv --num_labels 1 --ignore_mismatched_sizes && saved && loss
train --data numbers.tsv --num_labels 1
labels words.tsv 0.5 good
train --data words.tsv --num_labels 1 --ignore_mismatched_sizes

echo "## classes"
labels twelve.tsv 0 1 2 3 4 5 6 7 8 9 10 11
train --data twelve.tsv --num_labels 12 --ignore_mismatched_sizes && saved
train --data twelve.tsv --num_labels 5 --ignore_mismatched_sizes
labels empty.tsv x '' y
train --data empty.tsv --ignore_mismatched_sizes

echo "## evaluation"
labels all.tsv 0 1 2 0 1 2 0 1 2
hasten train $quiet --model texts --data all.tsv --max_steps 100 --learning_rate 3e-3 --output_dir trained >/dev/null 2>&1
cp texts/vocab.txt trained
scores --model trained --eval_data all.tsv
printf 'text\tlabel\nword2\t1\nword3\tLABEL_2\n' >some.tsv
scores --model trained --eval_data some.tsv
labels names.tsv good bad
scores --model trained --eval_data names.tsv
labels unknown.tsv 0 1 3
scores --model trained --eval_data unknown.tsv

echo "## no labels"
printf 'text\nword1\nword2\n' >bare.tsv
scores --model trained --eval_data bare.tsv
hasten train $quiet --model trained --eval_data bare.tsv --do_predict --output_dir scored 2>&1 | grep -E 'error|^exit|Predictions'

echo "## stand-in rows"
rm -rf out
train --data dummy --dummy_rows 4 --dummy_length 8
ls out
