#include "hasten/trainer/exported_data.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strict_json.h"
#include "data/arrow_files.h"
#include "data/column_names.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/data/collator.h"
#include "hasten/data/text_reader.h"
#include "hasten/formats/safetensors.h"
#include "hasten/metrics/classification.h"
#include "machine/arrow_data.h"
#include "trainer/arrow_rows.h"
#include "trainer/data_files.h"
#include "trainer/exported_rows.h"
#include "trainer/run_plan.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using exported::UserInput;
using nlohmann::json;

constexpr std::size_t kMaxArrayDimensions = 64;  // LibTorch takes no more
const std::set<std::string> kTokenInputs = {kInputIdsColumn, "attention_mask", "token_type_ids"};

bool is_safetensors(const std::string& file) { return ends_with(lower(file), ".safetensors"); }

[[noreturn]] void fail_field(const TextTable& table, const std::string& column, std::size_t row,
                             const std::string& got, const std::string& expected) {
  throw DataError("text.number",
                  {.what = str(table.file(), ":", table.line(static_cast<std::int64_t>(row)),
                               ": column \"", column, "\""),
                   .got = got,
                   .expected = expected});
}

// The whole numbers that fit into a type of tensors.
struct WholeNumbers {
  std::int64_t minimum, maximum;
};

// Returns those that a double also represents exactly, because JSON arrays are read as doubles.
// Returns nullopt for a type that is not of whole numbers.
std::optional<WholeNumbers> whole_numbers_of(at::ScalarType type) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53;
  switch (type) {
    case at::ScalarType::Bool:
      return WholeNumbers{0, 1};
    case at::ScalarType::Byte:
      return WholeNumbers{0, 255};
    case at::ScalarType::Char:
      return WholeNumbers{-128, 127};
    case at::ScalarType::Short:
      return WholeNumbers{-32768, 32767};
    case at::ScalarType::UInt16:
      return WholeNumbers{0, 65535};
    case at::ScalarType::Int:
      return WholeNumbers{std::numeric_limits<std::int32_t>::min(),
                          std::numeric_limits<std::int32_t>::max()};
    case at::ScalarType::Long:
      return WholeNumbers{-kExact, kExact};
    default:
      return std::nullopt;
  }
}

// Throws for a number that the type would change: one with a fraction, or one out of its range.
void check_fits(const TextTable& table, const std::string& column, std::size_t row, double number,
                at::ScalarType type) {
  const auto fitting = whole_numbers_of(type);
  if (!fitting) return;
  const bool fits = number == std::trunc(number) &&
                    number >= static_cast<double>(fitting->minimum) &&
                    number <= static_cast<double>(fitting->maximum);
  if (fits) return;
  fail_field(table, column, row, str(number),
             str("a whole number from ", fitting->minimum, " to ", fitting->maximum,
                 ", because the input is ", c10::toString(type)));
}

// Returns a column of whole numbers in the type of an input.
at::Tensor integers_of(const TextTable& table, const std::string& column, at::ScalarType type) {
  const std::vector<std::int64_t> numbers = table.integers(column);
  for (std::size_t row = 0; type != at::kLong && row < numbers.size(); ++row)
    check_fits(table, column, row, static_cast<double>(numbers[row]), type);
  return at::tensor(numbers, at::kLong).to(type);
}

// Appends the numbers of a JSON array and returns its shape. Returns nullopt if its parts differ in
// shape or are not numbers.
std::optional<std::vector<std::int64_t>> append_numbers(const json& value,
                                                        std::vector<double>& numbers) {
  if (value.is_boolean() || value.is_number()) {
    numbers.push_back(value.is_boolean() ? double(value.get<bool>()) : value.get<double>());
    return std::vector<std::int64_t>{};
  }
  if (!value.is_array()) return std::nullopt;
  std::optional<std::vector<std::int64_t>> inner;
  for (const json& part : value) {
    auto shape = append_numbers(part, numbers);
    if (!shape || (inner && *inner != *shape)) return std::nullopt;
    inner = std::move(shape);
  }
  std::vector<std::int64_t> shape = inner.value_or(std::vector<std::int64_t>{});
  shape.insert(shape.begin(), static_cast<std::int64_t>(value.size()));
  return shape;
}

// Returns a column of JSON arrays as a tensor [rows, ...].
at::Tensor arrays_of(const TextTable& table, const std::string& column, at::ScalarType type) {
  std::vector<double> numbers;
  std::optional<std::vector<std::int64_t>> all;
  const std::vector<std::string>& fields = table.column(column);
  for (std::size_t row = 0; row < fields.size(); ++row) {
    const json value = parse_json_or_discard(fields[row], {.max_depth = kMaxArrayDimensions - 1});
    const std::size_t first = numbers.size();
    const auto shape = append_numbers(value, numbers);
    if (!shape) fail_field(table, column, row, fields[row].substr(0, 60), "an array of numbers");
    if (all && *all != *shape)
      fail_field(table, column, row, c10::str("an array of ", at::IntArrayRef(*shape)),
                 c10::str(at::IntArrayRef(*all), ", as in the first row"));
    all = *shape;
    for (std::size_t i = first; i < numbers.size(); ++i)
      check_fits(table, column, row, numbers[i], type);
  }
  std::vector<std::int64_t> sizes = all.value_or(std::vector<std::int64_t>{});
  sizes.insert(sizes.begin(), table.rows());
  return at::tensor(numbers, at::kDouble).view(sizes).to(type);
}

at::Tensor numbers_of(const TextTable& table, const std::string& column, at::ScalarType type) {
  const std::vector<std::string>& fields = table.column(column);
  if (!fields.empty() && starts_with(trim(fields[0]), "[")) return arrays_of(table, column, type);
  if (c10::isFloatingType(type)) return at::tensor(table.numbers(column), at::kDouble).to(type);
  return integers_of(table, column, type);
}

// Returns the tensor in the type of the input. Does not convert whole numbers to numbers with
// fractions, or the other way round.
at::Tensor converted(const at::Tensor& tensor, const UserInput& input, const std::string& file) {
  const at::ScalarType type = input.meta.dtype;
  const bool fits = c10::isFloatingType(type) ? tensor.is_floating_point()
                                              : !tensor.is_floating_point() && !tensor.is_complex();
  if (fits || tensor.scalar_type() == type) return tensor.to(type);
  throw DataError("data.columns", {.what = str(file, ": column \"", input.name, "\""),
                                   .got = c10::toString(tensor.scalar_type()),
                                   .expected = c10::toString(type)});
}

// Returns the names in id2label of a config.json by their numbers. Returns no names if the file has
// none, or has the names LABEL_0 and so on, which mean nothing.
std::vector<std::string> configured_classes(const fs::path& config) {
  if (!fs::is_regular_file(config)) return {};
  const json all = read_json_or_discard(config);
  if (!all.is_object() || !all.contains("id2label")) return {};
  const json& by_id = all["id2label"];
  std::vector<std::string> names;
  for (std::size_t id = 0; by_id.is_object() && id < by_id.size(); ++id) {
    const auto name = by_id.find(std::to_string(id));
    if (name == by_id.end() || !name->is_string()) return {};
    names.push_back(name->get<std::string>());
  }
  const bool are_given = !names.empty() && names.front() != "LABEL_0";
  return are_given ? names : std::vector<std::string>();
}

}  // namespace

struct ExportedFiles::Impl {
  const TrainOptions options;
  ExportedModule& model;
  const ExportedModule::Parts& parts;
  std::optional<RowTokenizer> tokenizer;
  std::vector<std::string> classes;  // by number, once names of classes have been read
  TrainerDataset train, eval;
  bool has_class_labels = false;
  bool needs_labels = true;  // whether the rows that are read now need labels
  bool has_unlabeled_rows = false;

  Impl(const TrainOptions& given, ExportedModule& module)
      : options(with_splits(given)), model(module), parts(module.parts()) {}

  std::string file() const { return parts.archive.file(); }

  fs::path folder() const { return fs::absolute(options.model).parent_path(); }

  std::vector<const UserInput*> inputs() const {
    std::vector<const UserInput*> all;
    for (const std::string& name : model.input_names()) {
      all.push_back(find_input(parts, name));
      if (all.back()->kind == UserInput::Kind::tensor) continue;
      throw UsageError("exported.inputs",
                       {.what = file() + ": the input " + name,
                        .got = "a whole number",
                        .expected = "a tensor with a row for each row of a batch",
                        .hint = "export the model with such inputs only"});
    }
    return all;
  }

  [[noreturn]] void fail_column(const std::string& source, const std::vector<std::string>& has,
                                const std::string& lacks) const {
    throw DataError("data.columns", {.what = source + ": there is no column \"" + lacks + "\"",
                                     .got = "[" + join(has, ", ") + "]",
                                     .expected = "the inputs of " + file() + ": " +
                                                 join(model.input_names(), ", ")});
  }

  // True if the rows may lack the input. Records that they lack it.
  bool may_omit(const std::string& input) {
    if (input != kLabelsColumn || needs_labels) return false;
    has_unlabeled_rows = has_unlabeled_rows || find_input(parts, kLabelsColumn) != nullptr;
    return true;
  }

  // Returns the columns of Arrow data that the program may need. If one of them cannot be read,
  // this is an error; other columns are left out.
  std::vector<std::string> arrow_columns(const std::string& name) const {
    if (!is_arrow_data(name)) return {};
    std::vector<std::string> names = model.input_names(), columns;
    if (find_input(parts, kLabelsColumn) != nullptr || loss_for(parts)) {
      names.emplace_back(kLabelsColumn);
      names.push_back(options.label_column);
    }
    const detail::ArrowFiles files(name);
    if (find_input(parts, kInputIdsColumn) != nullptr && !files.has(kInputIdsColumn) &&
        std::find(names.begin(), names.end(), options.text_column) == names.end())
      names.push_back(options.text_column);
    for (const std::string& each : names) {
      if (files.has(each) && files.column(each).value != ArrowValue::other) columns.push_back(each);
    }
    return columns;
  }

  TrainerDataset read(const std::string& name) {
    if (name.empty()) return TrainerDataset();
    if (name == kDummyData)
      return dataset(example_rows(parts, options.dummy_rows, options.dummy_length), name);
    if (is_safetensors(name)) return dataset_from_tensors(load_safetensors(name), name);
    if (is_arrow_data(name) && !has_arrow_column(name, options.text_column))
      return dataset_from_tensors(arrow_tensors(name, options.label_column), name);
    const TextTable table =
        read_text_table(name, {.columns = arrow_columns(name), .structured = true});
    const bool is_text = find_input(parts, kInputIdsColumn) != nullptr &&
                         !has_column(table, kInputIdsColumn) &&
                         has_column(table, options.text_column);
    return is_text ? dataset_from_texts(table) : dataset_from_numbers(table);
  }

  TrainerDataset dataset_from_tensors(const TensorDict& tensors, const std::string& source) {
    TensorDict columns;
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    for (const UserInput* input : inputs()) {
      const auto found = tensors.find(input->name);
      if (found == tensors.end() && may_omit(input->name)) continue;
      if (found == tensors.end()) fail_column(source, names, input->name);
      columns[input->name] = converted(found->second, *input, source);
    }
    const bool uses_labels = static_cast<bool>(loss_for(parts)) && !columns.contains(kLabelsColumn);
    const bool has_labels = tensors.contains(kLabelsColumn);
    if (uses_labels && needs_labels && !has_labels) fail_column(source, names, kLabelsColumn);
    if (uses_labels && has_labels) columns[kLabelsColumn] = tensors.at(kLabelsColumn);
    return dataset(ColumnDataset(std::move(columns)), source);
  }

  TrainerDataset dataset_from_numbers(const TextTable& table) {
    TensorDict columns;
    for (const UserInput* input : inputs()) {
      if (input->name == kLabelsColumn) continue;
      if (!has_column(table, input->name)) fail_column(table.file(), table.names(), input->name);
      columns[input->name] = numbers_of(table, input->name, input->meta.dtype);
    }
    add_labels(table, [&](at::Tensor labels) { columns[kLabelsColumn] = std::move(labels); });
    return dataset(ColumnDataset(std::move(columns)), table.file());
  }

  TrainerDataset dataset_from_texts(const TextTable& table) {
    for (const UserInput* input : inputs())
      if (!kTokenInputs.contains(input->name) && input->name != kLabelsColumn)
        fail_column(table.file(), table.names(), input->name);
    if (!tokenizer) tokenizer.emplace(folder());
    const std::int64_t limit = model.max_length();
    TokenDataset tokens =
        encode_texts(*tokenizer, table, options,
                     limit > 0 ? std::min(limit, options.max_length) : options.max_length);
    if (const auto known = vocabulary(kInputIdsColumn)) check_ids(tokens, *known, table.file());
    add_labels(table, [&](at::Tensor labels) { tokens.set_labels(std::move(labels)); });
    check_classes(tokens.labels(), table.file());
    DataCollatorWithPadding collator{.pad_token_id = tokenizer->pad_id()};
    const auto& sizes = find_input(parts, kInputIdsColumn)->meta.sizes;
    if (sizes.size() == 2 && std::holds_alternative<std::int64_t>(sizes[1]))
      collator.max_length = std::get<std::int64_t>(sizes[1]);
    return TrainerDataset(std::move(tokens), collator);
  }

  std::optional<std::int64_t> vocabulary(const std::string& input) const {
    const auto& all = parts.programs.front()->vocabularies;
    const auto found = all.find(input);
    return found == all.end() ? std::nullopt : std::make_optional(found->second);
  }

  // Calls `add` with the labels of the table, if the program or its loss takes labels.
  template <class Add>
  void add_labels(const TextTable& table, Add add) {
    const UserInput* const input = find_input(parts, kLabelsColumn);
    if (input == nullptr && !loss_for(parts)) return;
    const std::string column =
        has_column(table, options.label_column) ? options.label_column : kLabelsColumn;
    if (!has_column(table, column) && may_omit(kLabelsColumn)) return;
    const auto& fields = table.column(column);
    const bool is_array = !fields.empty() && starts_with(trim(fields[0]), "[");
    const bool is_float = input != nullptr ? c10::isFloatingType(input->meta.dtype)
                                           : kind_of(fields) == TextKind::numbers;
    if (is_array || is_float)
      return add(numbers_of(table, column, input != nullptr ? input->meta.dtype : at::kFloat));
    add(class_ids(table, column, input != nullptr ? input->meta.dtype : at::kLong));
  }

  // Whole numbers are the numbers of classes. Names are numbered.
  at::Tensor class_ids(const TextTable& table, const std::string& column, at::ScalarType type) {
    if (kind_of(table.column(column)) == TextKind::whole_numbers)
      return integers_of(table, column, type);
    if (classes.empty()) classes = configured_classes(folder() / "config.json");
    if (classes.empty()) classes = table.class_names(column);
    const auto expected = num_row_classes(parts);
    if (expected && static_cast<std::int64_t>(classes.size()) != *expected)
      throw DataError("train.labels",
                      {.what = str(table.file(), ", column \"", column, "\""),
                       .got = str(classes.size(), " names (", join(classes, ", "), ")"),
                       .expected = str(*expected, ", as ", file(), " has classes"),
                       .hint = "write the numbers of the classes instead of their names"});
    return at::tensor(table.classes(column, classes).ids, at::kLong).to(type);
  }

  void check_classes(const at::Tensor& labels, const std::string& source) {
    if (!labels.defined() || labels.dim() != 1 || labels.is_floating_point()) return;
    const auto count = num_row_classes(parts);
    if (!count) return;
    has_class_labels = true;
    check_labels(ColumnDataset({{kLabelsColumn, labels}}), *count, source,
                 "single_label_classification");
  }

  TrainerDataset dataset(ColumnDataset rows, const std::string& source) {
    if (rows.size() == 0) {
      throw DataError("data.empty", {.what = source,
                                     .got = "no rows",
                                     .expected = "at least one",
                                     .hint = "check that the file is complete"});
    }
    for (const auto& [name, column] : rows.columns())
      if (const auto known = vocabulary(name))
        check_ids(ColumnDataset({{kInputIdsColumn, column}}), *known, source + ": " + name);
    const auto labels = rows.columns().find(kLabelsColumn);
    if (labels != rows.columns().end()) check_classes(labels->second, source);
    return TrainerDataset(std::move(rows));
  }

  // Checks the first batch of `rows` rows. `place` describes it in errors.
  void check_rows(const TrainerDataset& data, std::int64_t rows, const std::string& place,
                  const std::string& hint) const {
    auto loader = data.loader({.batch_size = rows});
    auto first = loader.begin();
    TensorDict batch = first->as<TensorDict>();
    if (has_unlabeled_rows && !batch.contains(kLabelsColumn))
      batch[kLabelsColumn] = placeholder_labels(parts, batch);
    try {
      model.check_inputs(batch);
    } catch (const UsageError& error) {
      ErrorText text = error.text();
      text.what = place + ": " + text.what;
      if (!hint.empty()) text.hint = hint;
      throw UsageError(error.code(), std::move(text));
    }
  }
};

ExportedFiles::ExportedFiles(const TrainOptions& options, ExportedModule& model,
                             EvalLabels eval_labels)
    : impl_(std::make_unique<Impl>(options, model)) {
  impl_->train = impl_->read(impl_->options.data);
  impl_->needs_labels = eval_labels == EvalLabels::required;
  impl_->eval = impl_->read(options.eval_data);
}

ExportedFiles::~ExportedFiles() = default;

const TrainerDataset& ExportedFiles::train() const { return impl_->train; }
const TrainerDataset& ExportedFiles::eval() const { return impl_->eval; }

LossFunction ExportedFiles::compute_loss() const {
  return impl_->has_unlabeled_rows && !loss_for(impl_->parts) ? loss_with_optional_labels()
                                                              : loss_for(impl_->parts);
}

std::shared_ptr<EvalMetric> ExportedFiles::compute_metrics() const {
  return impl_->has_class_labels ? std::make_shared<Accuracy>() : nullptr;
}

std::vector<fs::path> ExportedFiles::extra_files() const {
  std::vector<fs::path> found;
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "vocab.txt"}) {
    const fs::path path = impl_->folder() / name;
    if (fs::is_regular_file(path)) found.push_back(path);
  }
  return found;
}

void ExportedFiles::check_batches(const TrainingArguments& arguments,
                                  std::int64_t processes) const {
  const auto check = [&](const TrainerDataset& data, std::int64_t batch, std::int64_t ranks,
                         bool drops_last, const std::string& name, const std::string& hint) {
    if (!data) return;
    const std::int64_t step = batch * ranks, rest = data.size() % step;
    if (data.size() >= batch) impl_->check_rows(data, batch, str("a batch of ", name), "");
    if (drops_last) return;
    const std::string last = str("the last batch of ", name, " (", data.size(), " rows)");
    if (rest % batch != 0) impl_->check_rows(data, rest % batch, last, hint);
    // A rank that has no rows of its own computes with a full batch of repeated rows.
  };
  const std::string dynamic = "export the model for batches of every size from 1";
  const std::int64_t ranks = data_ranks(arguments, processes);
  check(impl_->train, rows_of_rank(arguments, arguments.per_device_train_batch_size, ranks), ranks,
        arguments.dataloader_drop_last, impl_->options.data,
        "set --dataloader_drop_last, or " + dynamic);
  check(impl_->eval, rows_of_rank(arguments, arguments.per_device_eval_batch_size, processes),
        processes, false, impl_->options.eval_data,
        "set --per_device_eval_batch_size to a divisor of the number of rows, or " + dynamic);
}

}  // namespace hasten
