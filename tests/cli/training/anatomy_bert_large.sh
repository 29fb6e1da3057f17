# Predictions of the documentation's example. They do not depend on the machine.
program=$(dirname "$torch")/anatomy_bert_large
"$program" --page
"$program" --device cuda:v100-16gb
"$program" --device cuda:v100
"$program" --stepz 3
