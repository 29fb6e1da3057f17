// File: trainer/task_files.h (internal)
// Reads the files of the tasks that read_task_data (hasten/trainer/task_data.h) makes.
//
//   const std::unique_ptr<TaskData> data = read_masked_lm_files(options);
//
// Throws DataError, IoError, ConfigError. Thread rule: one thread at a time.
#pragma once

#include <memory>

#include "hasten/trainer/task_data.h"

namespace hasten {

// Reads words with tags, ready-made ids, or dummy rows. A .jsonl file (hasten/data/tagged_words.h)
// needs the tokenizer of the model folder, of any kind. A word's tag is the label of its first
// token. Its other tokens, and the special ones, have the label -100. The tags get their ids like
// the labels of a table (docs/formats.md). A safetensors file holds input_ids, attention_mask and
// labels, all [rows, length]. The labels of dummy rows follow from the ids. Metrics: the accuracy
// of tokens, and precision, recall and F1 of whole entities if the tags mark them, such as B-PER
// and I-PER (hasten/metrics/entities.h). Otherwise these scores are computed for tokens, and
// averaged over the tags.
// Source: run_ner.py of transformers, without label_all_tokens.
std::unique_ptr<TaskData> read_token_classification_files(const TrainOptions& options,
                                                          EvalLabels eval_labels);

// Reads texts, ready-made ids, or dummy rows. Texts come from a table (.tsv, .csv, .jsonl) or from
// the lines of a .txt file, and need the tokenizer of the model folder. They are joined and cut
// into rows of max_length tokens, and the rest at the end is left out. With line_by_line, each text
// is a row, cut to max_length. Texts of only white space are left out.
// DataCollatorForLanguageModeling masks the rows. The tokenizer, of any kind, must name a mask
// token; whole_word_mask uses its words. A safetensors file holds input_ids and attention_mask
// [rows, length]. If it also has labels of this shape, it is masked already and is not changed. In
// dummy rows, the selected tokens are not replaced. Metrics: the accuracy and the perplexity of the
// masked tokens.
// Source: run_mlm.py of transformers.
std::unique_ptr<TaskData> read_masked_lm_files(const TrainOptions& options);

// Reads texts, ready-made ids, or dummy rows, for a model that predicts the next token. Texts come
// from a table (.tsv, .csv, .jsonl) or from the lines of a .txt file, and need the tokenizer.json
// of the model folder. Each ends with the tokenizer's end token. They are joined and cut into rows
// of max_length tokens, and the rest at the end is left out. With line_by_line, each text is a row,
// cut to max_length. A safetensors file holds input_ids and, optionally, attention_mask [rows,
// length] and labels of this shape, with -100 for tokens that are not to be predicted. Without
// labels, the ids that are not masked are the labels. Metrics: the accuracy and the perplexity of
// the next tokens.
// Source: run_clm.py of transformers, which adds no end token of its own.
std::unique_ptr<TaskData> read_causal_lm_files(const TrainOptions& options);

// Reads images in the folders of their classes (list_image_folder of hasten/data/images.h), tables
// of images, ready-made pixels, or dummy rows. A .tsv, .csv or .jsonl file has the columns `file`,
// relative to the folder of the table, and `label`. Labels are classes, or the numbers of a
// regression, as in a table of texts (docs/formats.md). A safetensors file holds pixel_values,
// float [rows, channels, height, width] in the form that the model takes, and labels. The model
// folder's preprocessor_config.json says how images become the input of the model. Without it they
// are resized to the model's image_size, or to 224 x 224, and scaled to [-1, 1]. Images are decoded
// when a batch is made, so a damaged image ends the run at that point. The workers of
// --dataloader_num_workers decode in parallel. Metrics: the accuracy, or the errors of a
// regression.
std::unique_ptr<TaskData> read_image_classification_files(const TrainOptions& options,
                                                          EvalLabels eval_labels);

}  // namespace hasten
