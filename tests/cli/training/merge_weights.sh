# The weights in three files become one file, and one file becomes several again.
sharded=$data/../../unit/formats/data/sharded
hasten merge-weights "$sharded" merged
ls merged
hasten merge-weights merged one.safetensors
cmp merged/model.safetensors one.safetensors
hasten merge-weights --max_shard_size 100 merged again
ls again
hasten merge-weights
hasten merge-weights "$sharded" merged --max_shard_size 5XB
hasten merge-weights missing merged | cat
hasten merge-weights --help | head -1
