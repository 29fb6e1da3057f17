hasten train
hasten train --model bert-base --data dummy --lerning_rate 3e-5
hasten train --model bert-base --data dummy --learning_rate -1
hasten train --model bert-base --data missing.tsv
hasten train --model bert-lage --data dummy
HF_HUB_CACHE=/nowhere hasten train --model org/name --data dummy
hasten train --model bert-base --data dummy --deepspeed x
hasten train --model bert-base --data dummy --fp16 --weights_dtype bfloat16
hasten train --config_file missing.yaml
HASTEN_LERNING_RATE=1 hasten train --model bert-base --data dummy
printf 'model: bert-base\ndata: dummy\nmax_step: 3\n' >train.yaml
hasten train --config_file train.yaml
ln -s loop loop
hasten train --model loop/model --data dummy
hasten train --model bert-base --data loop/rows.tsv
hasten plot loop
