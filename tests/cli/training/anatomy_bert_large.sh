# The documentation's example, predicted: nothing of it depends on the machine.
program=$(dirname "$torch")/anatomy_bert_large
"$program" --page
"$program" --device cuda:v100-16gb
"$program" --device cuda:v100
"$program" --stepz 3
