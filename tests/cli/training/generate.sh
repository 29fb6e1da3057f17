# Tests the texts that a tiny decoder generates. The ids equal those of transformers (tests/oracle/generate_generation.py has more cases).
model=$data/decoders/gpt2
hasten generate --model "$model" --ids 7 19 33 --max_new_tokens 6
hasten generate --model "$model" --ids 7 19 33 --max_new_tokens 6 --num_beams 3 --num_return_sequences 2 --json | sed 's/\(score":-[0-9]*\.[0-9][0-9]\)[0-9]*/\1/'
hasten generate --model "$model" --ids 7 19 33 --max_new_tokens 8 --do_sample --seed 3 --num_return_sequences 2 --eos_token_id 5 40
# A tokenizer with a word for each id.
cp -r "$model" words
python3 -c '
import json
words = ["<pad>", "<s>", "</s>", "<unk>"] + ["w" + str(i) for i in range(4, 61)]
json.dump({"version": "1.0", "truncation": None, "padding": None,
           "added_tokens": [{"id": i, "content": words[i], "single_word": False, "lstrip": False, "rstrip": False,
                             "normalized": False, "special": True} for i in range(4)],
           "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
           "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(words)}, "unk_token": "<unk>"}},
          open("words/tokenizer.json", "w"))'
hasten generate --model words --prompt "w7 w19 w33" --max_new_tokens 6
printf 'w7 w19 w33\nw9\n' > prompts.txt
hasten generate --model words --prompts prompts.txt --max_new_tokens 4 --num_beams 2
hasten generate --model words --prompts prompts.txt --max_new_tokens 3 --json --batch_size 1
# Batches draw different samples.
printf 'w9\nw9\n' > twice.txt
hasten generate --model words --prompts twice.txt --max_new_tokens 6 --do_sample --seed 4 --batch_size 1
# If the text so far ends inside a character, the bytes of that character are held back until the text ends.
cp -r words bytes
python3 -c '
import json
tokenizer = json.load(open("bytes/tokenizer.json"))
tokenizer["model"]["vocab"]["\u00c3"] = tokenizer["model"]["vocab"].pop("w8")
tokenizer["decoder"] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
json.dump(tokenizer, open("bytes/tokenizer.json", "w"))'
hasten generate --model bytes --prompt "w7 w19 w33" --max_new_tokens 2
hasten generate --model bytes --prompt "w7 w19 w33" --max_new_tokens 6
# The folder sets options. Options on the command line take precedence.
echo '{"max_new_tokens": 2, "eos_token_id": [50, 51], "do_sample": false}' > words/generation_config.json
hasten generate --model words --prompt "w7 w19 w33"
hasten generate --model words --prompt "w7 w19 w33" --max_new_tokens 3
echo '{"typical_p": 0.5}' > words/generation_config.json
hasten generate --model words --prompt "w7"
# Wrong options.
hasten generate --model "$model"
hasten generate --prompt x
hasten generate --model missing --prompt x
hasten generate --model gpt2 --prompt x
hasten generate --model "$model" --prompt x --ids 5
hasten generate --model "$model" --ids 5 --num_beams 2 --do_sample
hasten generate --model "$model" --ids 5 --max_new_tokens 400
hasten generate --model "$model" --ids five
hasten generate --model "$model" --ids 4294967303
hasten generate --model "$model" --ids 5 --pad_token_id 61
# Weights that are missing from the folder.
hasten generate --model "$data/decoders/llama_base" --ids 5 --max_new_tokens 1 --eos_token_id 60 | wc -w
hasten generate --model "$model" --ids 5 --temperature 0
hasten generate --model "$data/models/sequence_single_label" --ids 5
rm words/generation_config.json
hasten generate --model words --prompt "" --max_new_tokens 3
