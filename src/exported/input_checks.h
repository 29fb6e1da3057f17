// File: exported/input_checks.h (internal)
// The inputs that the caller of a program gives, and the checks that they fit the export: data
// types, dimensions, sizes, the ranges of dynamic sizes, and guards.
//
//   InputChecks checks("model.pt2", std::move(inputs));
//   checks.add_guard("L['x'].size()[0] % 2 == 0", place);
//   checks.check(values, /*any_float=*/false);
//
// The sizes of the export are built into a program, so with other sizes it would compute something
// wrong or fail in the middle. check() throws UsageError "exported.inputs" that names the input and
// what the export allows. Thread rule: immutable after it is filled.
#pragma once

#include <ATen/core/ivalue.h>

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exported/schema_types.h"
#include "exported/size_expression.h"

namespace hasten::exported {

struct UserInput {
  enum class Kind { tensor, integer, constant };
  Kind kind = Kind::tensor;
  std::string name;
  TensorMeta meta;       // only for a tensor
  c10::IValue constant;  // the value at the export; the caller does not give it
};

class InputChecks {
 public:
  InputChecks() = default;
  InputChecks(std::string file, std::vector<UserInput> inputs, const std::string& place);

  const std::vector<UserInput>& inputs() const { return inputs_; }
  // The names of the inputs that the caller gives, in order.
  const std::vector<std::string>& names() const { return names_; }

  void add_range(const std::string& symbol, std::optional<std::int64_t> min,
                 std::optional<std::int64_t> max);
  void add_guard(const std::string& text, const std::string& place);

  // Chooses sizes for each input, in order: `rows` for a first dimension and `length` for any other
  // dimension of dynamic size, or the largest below them that the expressions of the export allow.
  // Sizes that the export has fixed stay. Empty for inputs that are not tensors.
  std::vector<std::vector<std::int64_t>> choose_sizes(std::int64_t rows, std::int64_t length) const;
  // Returns the largest size of a dimension, or nothing if it has no limit or does not exist.
  std::optional<std::int64_t> largest_size(const std::string& input, std::size_t dimension) const;
  // True if the first dimension (has_dynamic_length: another dimension) of an input may vary.
  bool has_dynamic_rows() const;
  bool has_dynamic_length() const;

  // Checks one value for each input. If `any_float` is true, every floating-point type is accepted
  // for an input that has one in the export, because the module was converted or computes under
  // autocast.
  void check(const std::vector<c10::IValue>& values, bool any_float) const;

 private:
  struct Range {
    std::optional<std::int64_t> min, max;
  };
  struct Guard {
    std::string text;
    SizeExpression expression;
  };

  static void choose_symbol(const SizeExpression& size, std::int64_t limit, SizeValues& chosen);
  bool is_dynamic(bool (*counts)(std::size_t dimension)) const;
  void check_tensor(const UserInput& input, const c10::IValue& value, bool any_float) const;
  // Returns the values of the symbols, which are the sizes of dimensions that are a bare symbol.
  SizeValues bind_symbols(const std::vector<c10::IValue>& values) const;
  void check_size(const UserInput& input, std::size_t dimension, std::int64_t size,
                  const SizeValues& values) const;
  [[noreturn]] void fail(const std::string& what, const std::string& got,
                         const std::string& expected, const std::string& hint = "") const;

  std::string file_;
  std::vector<UserInput> inputs_;
  std::vector<std::string> names_;
  std::vector<std::vector<SizeExpression>> sizes_;  // by input
  std::map<std::string, Range> ranges_;
  std::vector<Guard> guards_;
};

}  // namespace hasten::exported
