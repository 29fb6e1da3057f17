hasten
hasten --help
hasten --version | sed 's/[0-9][0-9.]*/N/'
hasten train --help | head -n 10
hasten train --model x --lerning_rate 1 -h | head -n 1
hasten convert --help
hasten diff --help
hasten inspect --help
hasten merge-weights --help
hasten plot --help
hasten verify --help
hasten help train | head -n 1
hasten help tran
