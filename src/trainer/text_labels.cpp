#include "trainer/text_labels.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "data/problem_type.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/metrics/classification.h"
#include "hasten/metrics/regression.h"

namespace hasten {
namespace {

using ClassNames = std::vector<std::string>;

std::string format_names(ClassNames names) {
  const std::size_t count = names.size();
  if (count > 8) {
    names.resize(8);
    names.push_back("...");
  }
  return str(count, count == 1 ? " name (" : " names (", join(names, ", "), ")");
}

// A file's labels, and what the option and the configuration say about them.
struct LabelContext {
  const TextTable& table;
  const std::string& column;
  const std::optional<std::int64_t>& num_labels;
  const ConfiguredLabels& configured;

  std::int64_t count() const { return num_labels.value_or(configured.count); }
  bool is_regression() const {
    // A different number of labels than the model's means a different task.
    return count() == 1 || (configured.problem_type == kRegression && count() == configured.count);
  }
  [[noreturn]] void fail(std::string got, std::string expected, std::string hint) const {
    throw DataError("train.labels", {.what = table.file() + ", column \"" + column + "\"",
                                     .got = std::move(got),
                                     .expected = std::move(expected),
                                     .hint = std::move(hint)});
  }
};

std::string label_name(std::int64_t id) { return str("LABEL_", id); }

// Returns the names of `count` classes without names: "0" or "LABEL_0", and so on.
ClassNames numbered(std::int64_t count, std::string (*name_of)(std::int64_t)) {
  ClassNames names;
  for (std::int64_t id = 0; id < count; ++id) names.push_back(name_of(id));
  return names;
}
ClassNames label_names(std::int64_t count) { return numbered(count, label_name); }
ClassNames whole_numbers_below(std::int64_t count) {
  return numbered(count, [](std::int64_t id) { return std::to_string(id); });
}

using ClassIds = std::map<std::string, std::int64_t>;

// Returns the ids of the texts that mean a class: its name and, for the number k, also LABEL_k, and
// vice versa. A name that two classes have means neither.
ClassIds ids_of(const ClassNames& classes) {
  ClassIds ids, duplicates;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    if (!ids.emplace(classes[i], id).second) duplicates.emplace(classes[i], id);
  }
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    if (classes[i] != label_name(id) && classes[i] != std::to_string(id)) continue;
    ids.emplace(label_name(id), id);
    ids.emplace(std::to_string(id), id);
  }
  for (const auto& [name, id] : duplicates) ids.erase(name);
  return ids;
}

TextLabels make_classes(ClassNames names) {
  ClassIds ids = ids_of(names);
  return {.regression = false, .classes = std::move(names), .ids = std::move(ids)};
}

bool is_whole_number(const std::string& text) { return kind_of({text}) == TextKind::whole_numbers; }

bool has_all(const ClassIds& ids, const ClassNames& names) {
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return ids.count(name) > 0; });
}

// Returns the classes 0 to count - 1 if every label is the number of one of them. Not all of them
// need to occur.
std::optional<ClassNames> numbered_classes(const ClassNames& found, std::int64_t count) {
  const bool named = std::all_of(found.begin(), found.end(), [](const std::string& name) {
    return starts_with(name, "LABEL_");
  });
  ClassNames classes = named ? label_names(count) : whole_numbers_below(count);
  if (!has_all(ids_of(classes), found)) return std::nullopt;
  return classes;
}

void check_one_label_per_row(const LabelContext& context) {
  if (context.configured.problem_type == kMultiLabel) {
    context.fail(
        "one label per row", str("several, because the model's problem_type is ", kMultiLabel),
        "pass a .safetensors file of token ids with labels [rows, labels], or a model for one "
        "label per row");
  }
  if (context.is_regression() && context.count() > 1) {
    context.fail("one number per row",
                 str(context.count(), ", because the model predicts that many numbers per row"),
                 "pass a .safetensors file of token ids with labels [rows, labels], or "
                 "--num_labels 1");
  }
}

TextLabels regression(const LabelContext& context) {
  (void)context.table.numbers(context.column,
                              "a model with one label is a regression. For classes, set "
                              "--num_labels to their number");
  return {.regression = true, .classes = {}, .ids = {}};
}

bool has_fractions(const std::vector<double>& numbers) {
  return std::any_of(numbers.begin(), numbers.end(),
                     [](double number) { return number != std::floor(number); });
}

ClassNames names_in(const LabelContext& context) {
  ClassNames names = context.table.class_names(context.column);
  if (names.empty())
    context.fail("-100 in every row", "labels", "-100 marks a row without a class");
  return names;
}

// Returns the classes in the data. The option gives their number.
ClassNames classes_of(const LabelContext& context, const ClassNames& found) {
  const std::int64_t count = *context.num_labels;
  if (const auto classes = numbered_classes(found, count)) return *classes;
  if (static_cast<std::int64_t>(found.size()) == count) return found;
  if (kind_of(found) == TextKind::whole_numbers) {
    (void)context.table.class_ids(
        context.column, ids_of(whole_numbers_below(count)),
        str("with --num_labels ", count, ", labels are the whole numbers from 0 to ", count - 1,
            ", or ", count, " different names"));
  }
  context.fail(format_names(found), str(count, ", as --num_labels says"),
               "correct --num_labels or the data, or leave out --num_labels");
}

// Refuses names of which most are numbers with fractions. Such a column is a regression with a cell
// that is missing, and not a task with a class for each number.
void check_not_damaged_numbers(const LabelContext& context, const ClassNames& found) {
  const auto is_fraction = [](const std::string& name) {
    return kind_of({name}) == TextKind::numbers;
  };
  const auto fractions = std::count_if(found.begin(), found.end(), is_fraction);
  if (2 * fractions <= std::ssize(found)) return;
  const std::string& other = *std::find_if_not(found.begin(), found.end(), is_fraction);
  context.fail(
      str(fractions, " numbers with a decimal point, and '", other, "'"),
      "numbers in every row, or names",
      str("correct the data; with --num_labels 1 the message names the line. --num_labels ",
          found.size(), " treats each number as a class"));
}

TextLabels infer_classes_or_regression(const LabelContext& context, const ClassNames& found) {
  if (kind_of(found) == TextKind::numbers) {
    if (has_fractions(context.table.numbers(context.column))) return regression(context);
    context.fail("whole numbers that are written as fractions",
                 "whole numbers without a decimal point, other names, or numbers with fractions",
                 str("--num_labels 1 treats them as a regression, --num_labels ", found.size(),
                     " as classes"));
  }
  check_not_damaged_numbers(context, found);
  if (found.size() == 1) {
    context.fail(format_names(found), "at least two classes",
                 "--num_labels 1 treats numbers as a regression");
  }
  const auto count = static_cast<std::int64_t>(found.size());
  return make_classes(numbered_classes(found, count).value_or(found));
}

}  // namespace

at::Tensor TextLabels::encode(const TextTable& table, const std::string& column) const {
  if (regression) return at::tensor(table.numbers(column), at::kDouble).to(at::kFloat);
  const char* hint = kind_of(classes) == TextKind::whole_numbers
                         ? "with --num_labels N, labels are whole numbers below N"
                         : "neither the training data nor the model has such a label";
  return at::tensor(table.class_ids(column, ids, hint), at::kLong);
}

TextLabels resolve_training_labels(const TextTable& table, const std::string& column,
                                   std::optional<std::int64_t> num_labels,
                                   const ConfiguredLabels& configured) {
  const LabelContext context{table, column, num_labels, configured};
  check_one_label_per_row(context);
  if (context.is_regression()) return regression(context);
  const ClassNames found = names_in(context);
  const ClassNames& known = configured.names;
  const bool as_many = static_cast<std::int64_t>(known.size()) == context.count();
  if (as_many && has_all(ids_of(known), found)) return make_classes(known);
  if (num_labels) return make_classes(classes_of(context, found));
  return infer_classes_or_regression(context, found);
}

TextLabels resolve_evaluation_labels(const TextTable& table, const std::string& column,
                                     std::optional<std::int64_t> num_labels,
                                     const ConfiguredLabels& configured) {
  const LabelContext context{table, column, num_labels, configured};
  check_one_label_per_row(context);
  if (context.is_regression()) return regression(context);
  const ClassNames found = names_in(context), unnamed = label_names(context.count());
  const bool as_many = configured.names.size() == unnamed.size();
  TextLabels known = make_classes(as_many ? configured.names : unnamed);
  // If no class has a number as its name, numbers can only be ids.
  if (std::none_of(known.classes.begin(), known.classes.end(), is_whole_number)) {
    for (std::int64_t id = 0; id < context.count(); ++id) known.ids.emplace(std::to_string(id), id);
  }
  // TextLabels::encode reports the line of a label that the model does not have.
  if (has_all(known.ids, found) || known.classes != unnamed || kind_of(found) != TextKind::names)
    return known;
  if (found.size() == unnamed.size()) return make_classes(found);
  context.fail(format_names(found), str("the ", unnamed.size(), " labels of the model"),
               "add the names of the labels to the model's config.json (id2label)");
}

ModelOptions with_labels(ModelOptions options, const std::optional<TextLabels>& labels) {
  if (!labels) return options;
  options.labels = labels->classes;
  options.problem_type = labels->regression ? kRegression : kSingleLabel;
  if (labels->regression) options.num_labels = 1;
  return options;
}

// Accuracy has no score for a regression, and errors have no meaning for classes.
std::shared_ptr<EvalMetric> row_metrics(const PreTrainedModel& model) {
  const bool regression =
      problem_type_of(model.problem_type(), model.num_labels(), false) == kRegression;
  if (regression) return std::make_shared<MeanErrors>();
  return std::make_shared<Accuracy>();
}

}  // namespace hasten
