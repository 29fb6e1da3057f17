# hasten checks the arguments, runs hasten-torch with the same arguments, and returns its exit code.
hasten train --model bert-base --data dummy --max_steps 2 --run_name 'two words'
FAKE_TORCH_EXIT=6 hasten train --model bert-base --data dummy
hasten train --model bert-base --data dummy --push_to_hub --warmup_ratio 0.1
touch rows.csv && hasten train --model . --data rows.csv

# An installation keeps hasten-torch in libexec.
mkdir -p "$folder/libexec/hasten"
mv "$folder/bin/hasten-torch" "$folder/libexec/hasten/"
hasten train --model bert-base --data dummy
rm "$folder/libexec/hasten/hasten-torch"
hasten train --model bert-base --data dummy
