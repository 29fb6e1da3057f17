// File: exported/size_expression.h (internal)
// Arithmetic with the sizes of a program's inputs: the guards that export writes as Python text,
// and the sizes that it writes in the notation of SymPy's srepr.
//
//   const auto guard = SizeExpression::parse_guard("L['x'].size()[0] == L['y'].size()[0]", inputs);
//   const bool holds = guard.evaluate(values).value_or(0) != 0;
//   const auto size = SizeExpression::parse_srepr("Mul(Integer(2), Symbol('s0', integer=True))");
//
// A small parser reads the text; Python never runs. Throws DataError "exported.graph" for a text
// that it cannot read or that is nested more than 64 levels deep. Thread rule: immutable. Source:
// torch/_export/utils.py and SymPy's srepr.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace hasten::exported {

// The values that an expression refers to.
struct SizeValues {
  // Returns the size of a dimension of an input, or nullopt if there is no such dimension.
  std::function<std::optional<std::int64_t>(std::size_t input, std::int64_t dimension)> size;
  std::map<std::string, std::int64_t> symbols;
};

class SizeExpression {
 public:
  // `inputs` has the name of each input, in order. `place` is for messages.
  static SizeExpression parse_guard(const std::string& text, const std::vector<std::string>& inputs,
                                    const std::string& place);
  static SizeExpression parse_srepr(const std::string& text, const std::string& place);

  // Returns the value; comparisons are 0 or 1. Returns nullopt if a symbol or a size has no value
  // or the expression divides by zero.
  std::optional<std::int64_t> evaluate(const SizeValues& values) const;
  // Returns the symbol if the expression is a single symbol, otherwise an empty string.
  const std::string& symbol() const { return symbol_; }
  // Adds all symbols of the expression to the set.
  void collect_symbols(std::set<std::string>& symbols) const;

 private:
  friend class GuardParser;
  friend class SreprParser;
  using Operation = std::optional<std::int64_t> (*)(std::int64_t, std::int64_t);

  std::int64_t constant_ = 0;
  std::string symbol_;
  std::optional<std::size_t> input_;  // constant_ is then the dimension
  Operation operation_ = nullptr;     // joins the operands from left to right
  std::vector<SizeExpression> operands_;
};

}  // namespace hasten::exported
