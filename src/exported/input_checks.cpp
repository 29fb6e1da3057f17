#include "exported/input_checks.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::exported {
namespace {

constexpr const char* kExportAgainHint =
    "give the input that the model was exported for, or export it again with dynamic_shapes";

std::string range_text(std::optional<std::int64_t> min, std::optional<std::int64_t> max) {
  if (!max) return str("at least ", min.value_or(0));
  return str(min.value_or(0), " to ", *max);
}

}  // namespace

InputChecks::InputChecks(std::string file, std::vector<UserInput> inputs, const std::string& place)
    : file_(std::move(file)), inputs_(std::move(inputs)) {
  for (const UserInput& input : inputs_) {
    if (input.kind != UserInput::Kind::constant) names_.push_back(input.name);
    std::vector<SizeExpression> sizes;
    for (const Size& size : input.meta.sizes) {
      const std::string* const text = std::get_if<std::string>(&size);
      sizes.push_back(SizeExpression::parse_srepr(
          text != nullptr ? *text : str("Integer(", std::get<std::int64_t>(size), ")"), place));
    }
    sizes_.push_back(std::move(sizes));
  }
}

void InputChecks::add_range(const std::string& symbol, std::optional<std::int64_t> min,
                            std::optional<std::int64_t> max) {
  ranges_[symbol] = {min, max};
}

void InputChecks::add_guard(const std::string& text, const std::string& place) {
  std::vector<std::string> names;
  for (const UserInput& input : inputs_) names.push_back(input.name);
  guards_.push_back({text, SizeExpression::parse_guard(text, names, place)});
}

std::vector<std::vector<std::int64_t>> InputChecks::choose_sizes(std::int64_t rows,
                                                                 std::int64_t length) const {
  SizeValues chosen;
  chosen.size = [](std::size_t, std::int64_t) { return std::nullopt; };
  for (const std::vector<SizeExpression>& sizes : sizes_)
    for (std::size_t d = 0; d < sizes.size(); ++d)
      choose_symbol(sizes[d], d == 0 ? rows : length, chosen);
  std::vector<std::vector<std::int64_t>> all;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    std::vector<std::int64_t>& sizes = all.emplace_back();
    for (std::size_t d = 0; d < sizes_[i].size(); ++d) {
      const auto size = sizes_[i][d].evaluate(chosen);
      if (!size)
        fail(str("dimension ", d, " of input ", inputs_[i].name),
             "an expression of several dynamic sizes", "one dynamic size in each dimension");
      sizes.push_back(*size);
    }
  }
  return all;
}

// Does nothing unless exactly one symbol of the expression has no value. Gives this symbol the
// largest value for which the expression is at most `limit`.
void InputChecks::choose_symbol(const SizeExpression& size, std::int64_t limit,
                                SizeValues& chosen) {
  std::set<std::string> symbols;
  size.collect_symbols(symbols);
  std::erase_if(symbols, [&](const std::string& name) { return chosen.symbols.contains(name); });
  if (symbols.size() != 1) return;
  std::int64_t& value = chosen.symbols[*symbols.begin()];
  for (value = limit; value > 1; --value) {
    const auto got = size.evaluate(chosen);
    if (got && *got <= limit) return;
  }
}

std::optional<std::int64_t> InputChecks::largest_size(const std::string& input,
                                                      std::size_t dimension) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].name != input || dimension >= sizes_[i].size()) continue;
    SizeValues largest;
    largest.size = [](std::size_t, std::int64_t) { return std::nullopt; };
    for (const auto& [symbol, range] : ranges_)
      if (range.max) largest.symbols[symbol] = *range.max;
    return sizes_[i][dimension].evaluate(largest);
  }
  return std::nullopt;
}

bool InputChecks::is_dynamic(bool (*counts)(std::size_t dimension)) const {
  std::set<std::string> symbols;
  for (const std::vector<SizeExpression>& sizes : sizes_)
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (counts(d)) sizes[d].collect_symbols(symbols);
  return !symbols.empty();
}

bool InputChecks::has_dynamic_rows() const {
  return is_dynamic([](std::size_t dimension) { return dimension == 0; });
}

bool InputChecks::has_dynamic_length() const {
  return is_dynamic([](std::size_t dimension) { return dimension > 0; });
}

void InputChecks::check(const std::vector<c10::IValue>& values, bool any_float) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].kind == UserInput::Kind::tensor) check_tensor(inputs_[i], values[i], any_float);
  const SizeValues bound = bind_symbols(values);
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].kind != UserInput::Kind::tensor) continue;
    const at::Tensor& tensor = values[i].toTensor();
    for (std::size_t d = 0; d < sizes_[i].size(); ++d)
      check_size(inputs_[i], d, tensor.size(static_cast<std::int64_t>(d)), bound);
  }
  for (const auto& [symbol, size] : bound.symbols) {
    const auto range = ranges_.find(symbol);
    if (range == ranges_.end()) continue;
    const auto [min, max] = range->second;
    if ((min && size < *min) || (max && size > *max))
      fail("the dynamic size " + symbol, std::to_string(size), range_text(min, max),
           "the model was exported for these sizes; a last batch that is too short can be dropped "
           "(--dataloader_drop_last)");
  }
  for (const Guard& guard : guards_) {
    const auto holds = guard.expression.evaluate(bound);
    if (!holds || *holds == 0)
      fail("the sizes of the inputs", "sizes that break the rule", guard.text, kExportAgainHint);
  }
}

void InputChecks::check_tensor(const UserInput& input, const c10::IValue& value,
                               bool any_float) const {
  const at::Tensor& tensor = value.toTensor();
  const at::ScalarType expected = input.meta.dtype, got = tensor.scalar_type();
  const bool both_float = c10::isFloatingType(expected) && c10::isFloatingType(got);
  if (got != expected && !(any_float && both_float))
    fail("the type of input " + input.name, c10::toString(got), c10::toString(expected));
  if (tensor.dim() != static_cast<std::int64_t>(input.meta.sizes.size()))
    fail("the shape of input " + input.name, std::to_string(tensor.dim()) + " dimensions",
         std::to_string(input.meta.sizes.size()) + " dimensions");
}

SizeValues InputChecks::bind_symbols(const std::vector<c10::IValue>& values) const {
  SizeValues bound;
  bound.size = [&values](std::size_t input, std::int64_t dimension) -> std::optional<std::int64_t> {
    if (!values[input].isTensor()) return std::nullopt;
    const at::Tensor& tensor = values[input].toTensor();
    if (dimension < 0 || dimension >= tensor.dim()) return std::nullopt;
    return tensor.size(dimension);
  };
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    for (std::size_t d = 0; d < sizes_[i].size(); ++d) {
      const std::string& symbol = sizes_[i][d].symbol();
      if (!symbol.empty())
        bound.symbols.emplace(symbol, values[i].toTensor().size(static_cast<std::int64_t>(d)));
    }
  }
  return bound;
}

void InputChecks::check_size(const UserInput& input, std::size_t dimension, std::int64_t size,
                             const SizeValues& values) const {
  const auto expected =
      sizes_[static_cast<std::size_t>(&input - inputs_.data())][dimension].evaluate(values);
  if (!expected || *expected == size) return;
  const bool is_fixed = std::holds_alternative<std::int64_t>(input.meta.sizes[dimension]);
  fail(str("dimension ", dimension, " of input ", input.name), std::to_string(size),
       std::to_string(*expected) + (is_fixed ? "" : ", as in another input"), kExportAgainHint);
}

void InputChecks::fail(const std::string& what, const std::string& got, const std::string& expected,
                       const std::string& hint) const {
  throw UsageError("exported.inputs",
                   {.what = file_ + ": " + what, .got = got, .expected = expected, .hint = hint});
}

}  // namespace hasten::exported
