#include "trainer/exported_rows.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <variant>

#include "data/column_names.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "models/losses.h"

namespace hasten {
namespace {

using exported::Program;
using exported::UserInput;

constexpr std::uint64_t kSeed = 42;

const Program& training_program(const ExportedModule::Parts& parts) {
  return *parts.programs.front();
}

bool returns_loss(const Program& program) {
  const auto& names = program.output_names;
  return std::find(names.begin(), names.end(), "loss") != names.end();
}

// Returns the output named "logits", or the only output other than "loss". Null if there is none.
const exported::TensorMeta* logits_of_program(const Program& program) {
  const auto& names = program.output_names;
  const exported::TensorMeta* only = nullptr;
  std::size_t others = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "logits") return &program.outputs[i];
    if (names[i] == "loss") continue;
    only = &program.outputs[i];
    ++others;
  }
  return others == 1 ? only : nullptr;
}

[[noreturn]] void fail_rows(const Program& program, const std::string& input,
                            const std::string& got) {
  throw UsageError("exported.inputs", {.what = program.file + ": the input " + input,
                                       .got = got,
                                       .expected = "a tensor with a row for each row of a batch",
                                       .hint = "export the model with such inputs only"});
}

at::Tensor example_column(const Program& program, const UserInput& input,
                          const std::vector<std::int64_t>& sizes, const at::Generator& random) {
  const at::ScalarType type = input.meta.dtype;
  const auto vocabulary = program.vocabularies.find(input.name);
  if (c10::isFloatingType(type)) return at::randn(sizes, random, at::kFloat).to(type);
  if (type == at::kBool || ends_with(input.name, "mask")) return at::ones(sizes, type);
  std::int64_t ids = vocabulary != program.vocabularies.end() ? vocabulary->second : 2;
  return at::randint(0, std::max<std::int64_t>(ids, 1), sizes, random, at::kLong).to(type);
}

[[noreturn]] void fail_no_loss(const Program& program) {
  throw UsageError("exported.no-loss",
                   {.what = program.file + ": training",
                    .got = "the outputs " + join(program.output_names, ", "),
                    .expected = "an output \"loss\", or logits [rows, classes]",
                    .hint = "export a model that takes labels and returns a dictionary with its "
                            "loss"});
}

at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& labels) {
  if (!labels.is_floating_point()) return cross_entropy(logits, labels);
  const at::Tensor numbers = logits.to(at::kFloat);
  return at::mse_loss(numbers.numel() == labels.numel() ? numbers.view_as(labels) : numbers,
                      labels.to(at::kFloat));
}

}  // namespace

const UserInput* find_input(const ExportedModule::Parts& parts, const std::string& name) {
  const auto& inputs = training_program(parts).user_inputs.inputs();
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const UserInput& input) {
    return input.name == name && input.kind != UserInput::Kind::constant;
  });
  return found == inputs.end() ? nullptr : &*found;
}

ColumnDataset example_rows(const ExportedModule::Parts& parts, std::int64_t rows,
                           std::int64_t length) {
  const Program& program = training_program(parts);
  const auto sizes = program.user_inputs.choose_sizes(rows, length);
  const at::Generator random = at::detail::createCPUGenerator(kSeed);
  TensorDict columns;
  std::optional<std::int64_t> batch;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const UserInput& input = program.user_inputs.inputs()[i];
    if (input.kind == UserInput::Kind::constant) continue;
    if (input.kind == UserInput::Kind::integer) fail_rows(program, input.name, "a whole number");
    std::vector<std::int64_t> of_column = sizes[i];
    if (of_column.empty()) fail_rows(program, input.name, "a tensor without dimensions");
    if (batch.value_or(of_column[0]) != of_column[0])
      fail_rows(program, input.name, str("a first dimension of ", of_column[0]));
    batch = of_column[0];
    of_column[0] = rows;
    columns[input.name] = example_column(program, input, of_column, random);
  }
  if (!returns_loss(program) && !columns.contains(kLabelsColumn)) {
    const auto classes = num_row_classes(parts);
    if (!classes) fail_no_loss(program);
    columns[kLabelsColumn] = at::randint(0, *classes, {rows}, random, at::kLong);
  }
  return ColumnDataset(std::move(columns));
}

LossFunction loss_for(const ExportedModule::Parts& parts) {
  const Program& program = training_program(parts);
  if (returns_loss(program)) return {};
  const exported::TensorMeta* const logits = logits_of_program(program);
  if (logits == nullptr || logits->sizes.size() != 2) fail_no_loss(program);
  return LossFunction([](ExportedModule& model, TensorDict& batch) {
    ModelOutput out = detail::output_of(model.forward(batch));
    const auto labels = batch.find(kLabelsColumn);
    if (labels != batch.end()) out.loss = loss_of(out.logits, labels->second);
    return out;
  });
}

at::Tensor placeholder_labels(const ExportedModule::Parts& parts, const TensorDict& batch) {
  const Program& program = training_program(parts);
  const exported::TensorMeta& meta = find_input(parts, kLabelsColumn)->meta;
  // A dynamic size is the size of an input with the same symbol.
  const auto size_of = [&](const exported::Size& size) {
    if (const auto* const number = std::get_if<std::int64_t>(&size)) return *number;
    for (const UserInput& input : program.user_inputs.inputs()) {
      const auto given = batch.find(input.name);
      if (given == batch.end()) continue;
      for (std::size_t i = 0; i < input.meta.sizes.size(); ++i)
        if (input.meta.sizes[i] == size) return given->second.size(static_cast<std::int64_t>(i));
    }
    throw UsageError("exported.inputs", {.what = program.file + ": rows without labels",
                                         .got = "labels of a size that no other input has",
                                         .expected = "rows with labels"});
  };
  std::vector<std::int64_t> sizes;
  for (const exported::Size& size : meta.sizes) sizes.push_back(size_of(size));
  return at::zeros(sizes, batch.begin()->second.options().dtype(meta.dtype));
}

LossFunction loss_with_optional_labels() {
  return LossFunction([](ExportedModule& model, TensorDict& batch) {
    if (batch.contains(kLabelsColumn)) return detail::output_of(model.forward(batch));
    TensorDict all = batch;
    all[kLabelsColumn] = placeholder_labels(model.parts(), batch);
    ModelOutput out = detail::output_of(model.forward(all));
    out.loss = at::Tensor();
    return out;
  });
}

std::optional<std::int64_t> num_row_classes(const ExportedModule::Parts& parts) {
  const Program& program = training_program(parts);
  const exported::TensorMeta* const logits = logits_of_program(program);
  if (logits == nullptr || logits->sizes.size() != 2) return std::nullopt;
  const UserInput* const labels = find_input(parts, kLabelsColumn);
  if (labels != nullptr &&
      (labels->meta.sizes.size() != 1 || c10::isFloatingType(labels->meta.dtype)))
    return std::nullopt;
  const auto* const classes = std::get_if<std::int64_t>(&logits->sizes[1]);
  return classes == nullptr ? std::nullopt : std::make_optional(*classes);
}

}  // namespace hasten
