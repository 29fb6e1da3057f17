# hasten checks the arguments, runs hasten-torch with the same arguments, and returns its exit code.
hasten train --model bert-base --data dummy --max_steps 2 --run_name 'two words'
FAKE_TORCH_EXIT=6 hasten train --model bert-base --data dummy
hasten train --model bert-base --data dummy --push_to_hub --warmup_ratio 0.1
touch rows.csv && hasten train --model . --data rows.csv

# A stream that is closed is /dev/null in hasten-torch. Otherwise a file of the run would get its number.
mv "$folder/bin/hasten-torch" kept
printf '#!/bin/sh\nlinks=$(readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2)\necho "$links" >streams\n' >"$folder/bin/hasten-torch"
chmod +x "$folder/bin/hasten-torch"
hasten train --model bert-base --data dummy <&- >&- 2>&-
cat streams
mv kept "$folder/bin/hasten-torch"

# An installation keeps hasten-torch in libexec.
mkdir -p "$folder/libexec/hasten"
mv "$folder/bin/hasten-torch" "$folder/libexec/hasten/"
hasten train --model bert-base --data dummy
rm "$folder/libexec/hasten/hasten-torch"
hasten train --model bert-base --data dummy
