// check_labels, check_ids and check_lengths: compare a dataset's values with what the model
// accepts.
#include <algorithm>
#include <cmath>

#include "data/padding.h"
#include "data/problem_type.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/data/column_dataset.h"

namespace hasten {
namespace {

std::string prefix(const std::string& source) { return source.empty() ? "" : source + ": "; }

bool label_fits(std::int64_t label, std::int64_t count) {
  return (label >= 0 && label < count) || label == kIgnoredLabel;
}

[[noreturn]] void fail_label(const std::string& where, std::int64_t row, std::int64_t got,
                             std::int64_t count) {
  throw DataError("data.labels",
                  {.what = str(where, "the label of row ", row),
                   .got = std::to_string(got),
                   .expected = str("0 to ", count - 1, ", or -100, which is ignored"),
                   .hint = "set num_labels, or correct the data"});
}

[[noreturn]] void fail_id(const std::string& where, std::int64_t row, std::int64_t got,
                          std::int64_t size) {
  throw DataError("data.ids", {.what = str(where, "an id of row ", row),
                               .got = std::to_string(got),
                               .expected = str("0 to ", size - 1, ", the ids of the vocabulary"),
                               .hint = "tokenize the data with the vocabulary of this model"});
}

// Calls `check(row, value)` for each value of a column, converted to Value. Takes 4096 rows at a
// time, because values of another type or on another device are copied.
template <class Value = std::int64_t, class Check>
void for_each_value(const at::Tensor& column, Check&& check) {
  constexpr std::int64_t rows_per_chunk = 4096;
  for (std::int64_t first = 0; first < column.size(0); first += rows_per_chunk) {
    const std::int64_t rows = std::min(rows_per_chunk, column.size(0) - first);
    const at::Tensor values = column.narrow(0, first, rows)
                                  .to(at::kCPU, c10::CppTypeToScalarType<Value>::value)
                                  .contiguous();
    const std::int64_t each = values.numel() / rows;
    const Value* value = values.const_data_ptr<Value>();
    for (std::int64_t i = 0; i < values.numel(); ++i) check(first + i / each, value[i]);
  }
}

// Checks labels that are numbers instead of classes: `num_labels` per row.
void check_label_numbers(const at::Tensor& labels, std::int64_t num_labels,
                         const std::string& where, const std::string& problem_type) {
  const std::int64_t columns = labels.dim() > 1 ? labels.size(1) : 1;
  if (labels.dim() > 2 || columns != num_labels) {
    throw DataError("data.labels", {.what = where + (labels.is_floating_point()
                                                         ? "labels that are not whole numbers"
                                                         : "labels"),
                                    .got = str(columns, " per row"),
                                    .expected = str(num_labels, " per row, for ", problem_type),
                                    .hint = "convert class numbers to int64, or set num_labels and "
                                            "problem_type in the model's config.json"});
  }
  const bool is_multi_label = problem_type == kMultiLabel;
  for_each_value<double>(labels, [&](std::int64_t row, double value) {
    if (is_multi_label ? value >= 0 && value <= 1 : std::isfinite(value)) return;
    throw DataError(
        "data.labels",
        {.what = str(where, "the label of row ", row),
         .got = str(value),
         .expected = is_multi_label ? str("0 to 1, for ", problem_type) : "a finite number",
         .hint = is_multi_label
                     ? "to predict numbers, set \"problem_type\": \"regression\" in config.json"
                     : ""});
  });
}

void check_label_column(const at::Tensor& labels, std::int64_t num_labels, const std::string& where,
                        const std::string& configured) {
  if (num_labels < 1) {
    throw UsageError(
        "data.labels",
        {.what = "num_labels", .got = std::to_string(num_labels), .expected = "at least 1"});
  }
  const std::string problem_type =
      problem_type_of(configured, num_labels, labels.is_floating_point());
  if (problem_type != kSingleLabel)
    return check_label_numbers(labels, num_labels, where, problem_type);
  if (labels.is_floating_point()) {
    throw DataError("data.labels", {.what = where + "labels",
                                    .got = c10::toString(labels.scalar_type()),
                                    .expected = "int64 or int32, the numbers of classes",
                                    .hint = "convert class numbers to int64"});
  }
  for_each_value(labels, [&](std::int64_t row, std::int64_t label) {
    if (!label_fits(label, num_labels)) fail_label(where, row, label, num_labels);
  });
}

}  // namespace

void check_labels(const ColumnDataset& dataset, std::int64_t num_labels, const std::string& source,
                  const std::string& problem_type) {
  const std::string where = prefix(source);
  const auto labels = dataset.columns().find("labels");
  if (labels == dataset.columns().end()) {
    throw DataError("data.labels", {.what = where + "there is no column \"labels\""});
  }
  check_label_column(labels->second, num_labels, where, problem_type);
}

void check_labels(const TokenDataset& dataset, std::int64_t num_labels, const std::string& source,
                  const std::string& problem_type) {
  const std::string where = prefix(source);
  if (dataset.labels().defined())
    return check_label_column(dataset.labels(), num_labels, where, problem_type);
  for (std::int64_t row = 0; row < dataset.size(); ++row) {
    const TokenRow tokens = dataset.get(row);
    if (tokens.token_labels.empty()) {
      throw DataError("data.labels", {.what = where + "the rows have no labels"});
    }
    for (const std::int32_t label : tokens.token_labels) {
      if (!label_fits(label, num_labels)) fail_label(where, row, label, num_labels);
    }
  }
}

void check_ids(const ColumnDataset& dataset, std::int64_t vocab_size, const std::string& source) {
  const std::string where = prefix(source);
  const at::Tensor ids = tensor_at(dataset.columns(), "input_ids");
  if (ids.is_floating_point()) {
    throw DataError("data.ids", {.what = where + "input_ids",
                                 .got = c10::toString(ids.scalar_type()),
                                 .expected = "int64 or int32"});
  }
  for_each_value(ids, [&](std::int64_t row, std::int64_t id) {
    if (id < 0 || id >= vocab_size) fail_id(where, row, id, vocab_size);
  });
}

void check_ids(const TokenDataset& dataset, std::int64_t vocab_size, const std::string& source) {
  const std::string where = prefix(source);
  for (std::int64_t row = 0; row < dataset.size(); ++row) {
    for (const std::int32_t id : dataset.get(row).input_ids) {
      if (id < 0 || id >= vocab_size) fail_id(where, row, id, vocab_size);
    }
  }
}

void check_lengths(const ColumnDataset& dataset, std::int64_t max_length,
                   const std::string& source) {
  const at::Tensor ids = tensor_at(dataset.columns(), "input_ids");
  if (ids.dim() < 2) {
    throw DataError("data.lengths", {.what = prefix(source) + "input_ids",
                                     .got = "one number per row",
                                     .expected = "[rows, tokens]"});
  }
  const std::int64_t length = ids.size(1);
  if (length <= max_length) return;
  throw DataError("data.lengths",
                  {.what = prefix(source) + "input_ids",
                   .got = str(length, " tokens per row"),
                   .expected = str("at most ", max_length, ", the limit of the model"),
                   .hint = "shorten the rows, or use a model for longer ones"});
}

}  // namespace hasten
