printf 'model: bert-base\ndata: dummy\nlearning_rate: 3e-5   # from the paper\n' >train.yaml
HASTEN_SEED=7 hasten train --config_file train.yaml --bf16 --print_config | grep -v '# default$'

# The output is a configuration file with the same meaning.
hasten train --config_file train.yaml --bf16 --eval_data dummy --eval_strategy steps --print_config | sed 's/ *#.*//' >again.yaml
hasten train --config_file again.yaml --print_config | sed 's/ *#.*//' >twice.yaml
cmp again.yaml twice.yaml && echo same
