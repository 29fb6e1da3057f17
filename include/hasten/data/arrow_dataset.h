// File: hasten/data/arrow_dataset.h
// Reads the columns of Arrow and Parquet files as a dataset: folders that `save_to_disk` of Hugging
// Face datasets has written, .arrow files, and .parquet files.
//
//   ArrowDataset train = load_arrow_dataset("tokenized/train");
//   ArrowDataset eval = load_arrow_dataset("tokenized", {.split = "test"});   // of a DatasetDict
//   ArrowDataset rows = load_arrow_dataset("rows.parquet", {.columns = {"input_ids", "label"}});
//   auto loader = make_loader(train, {.batch_size = 8}, DataCollatorWithPadding{});
//   std::vector<std::string> names = train.class_names("label");              // of a ClassLabel
//
// A row has a tensor for each column: integers become int64, floating-point numbers float32,
// booleans bool, as in the "torch" format of datasets; a list becomes a dimension, so `list<int32>`
// is an int64 tensor [length], and its length may differ between rows. A column that encodes texts
// as integers (a ClassLabel, or a dictionary of Arrow) gives the integers. Columns of other types,
// such as texts, structs and dates, cannot become tensors: they are left out, and it is an error if
// `columns` names one. read_text_table (hasten/data/text_reader.h) reads text columns; `hasten
// train` uses it.
//
// Arrow files are mapped into memory: opening reads only the heads of the record batches (10 GB in
// 40 ms), and rows are read on demand. Columns of a Parquet file are decoded into memory as a
// whole, by one thread.
// Throws ConfigError "data.arrow-library" if hasten was built without Arrow, IoError "io.*",
// DataError "data.arrow" for a damaged file, "data.arrow-folder" for a folder that is not a dataset
// or has several splits, "data.arrow-column" for a column that is missing, that cannot be a tensor,
// or that has a null; the message names the file and the row, counted from 0. Also throws
// UsageError "data.row". Thread rule: reading is safe on many threads; copies share the files.
// Source: Dataset.save_to_disk and load_from_disk of datasets 5.2; Arrow's columnar format 1.5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/formats/detail/tensor_dict.h"

namespace hasten {

struct ArrowOptions {
  std::string split = {};  // The split to read if the folder has several.
  // The columns of the rows. If empty, these are the columns that set_format selected, or all
  // columns that can be tensors.
  std::vector<std::string> columns = {};
};

class HASTEN_API ArrowDataset {
 public:
  // For load_arrow_dataset.
  struct Impl;
  explicit ArrowDataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  std::int64_t size() const noexcept;
  // Returns the tensors of a row, as copies.
  TensorDict get(std::int64_t index) const;
  // The columns of the rows.
  const std::vector<std::string>& columns() const noexcept;
  // The class names of a column, by class number; empty if it has none.
  std::vector<std::string> class_names(const std::string& column) const;

 private:
  std::shared_ptr<const Impl> impl_;
};

HASTEN_API ArrowDataset load_arrow_dataset(const std::filesystem::path& path,
                                           const ArrowOptions& options = {});

}  // namespace hasten
