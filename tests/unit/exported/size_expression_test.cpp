// Expressions of sizes: Python's guards and SymPy's sizes have Python's values, and other texts are
// refused.
#include "exported/size_expression.h"

#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "unit/code_of.h"

namespace exported_size_expression_test {

using namespace hasten;
using exported::SizeExpression;
using exported::SizeValues;

namespace {

using Number = std::optional<std::int64_t>;

const std::vector<std::string> kInputs = {"x", "y"};

// x has the size [7, 3]; y has no dimensions. The symbol s0 is -7.
SizeValues values() {
  return {.size = [](std::size_t input, std::int64_t dimension) -> Number {
            if (input != 0 || dimension < 0 || dimension > 1) return std::nullopt;
            return dimension == 0 ? 7 : 3;
          },
          .symbols = {{"s0", -7}}};
}

Number guard(const std::string& text) {
  return SizeExpression::parse_guard(text, kInputs, "test").evaluate(values());
}

Number size(const std::string& text) {
  return SizeExpression::parse_srepr(text, "test").evaluate(values());
}

}  // namespace

TEST_CASE("size expression: guards have the values of Python") {
  CHECK(guard("L['x'].size()[0]") == 7);
  CHECK(guard("L['flat_args'][0].size()[1]") == 3);
  CHECK(guard("2 + 3 * L['x'].size()[1] - 1") == 10);
  CHECK(guard("(2 + 3) * -2") == -10);
  CHECK(guard("-7 // 2") == -4);
  CHECK(guard("7 // -1") == -7);
  CHECK(guard("-7 % 3") == 2);
  CHECK(guard("7 % -3") == -2);
  CHECK(guard("7 % -1") == 0);
  CHECK(guard("min(4, 2, 3)") == 2);
  CHECK(guard("max(4, 9, 3)") == 9);
  for (const char* holds :
       {"1 == 1", "1 != 2", "1 < 2", "2 > 1", "1 <= 1", "1 >= 1", "True", "not False",
        "False or 3 > 2", "True and 2 > 1", "1 < 2 and not (2 < 1 or False)"}) {
    CAPTURE(holds);
    CHECK(guard(holds) == 1);
    CHECK(guard(std::string("not (") + holds + ")") == 0);
  }
}

TEST_CASE("size expression: overflows and divisions by zero have no value") {
  const std::string large = "9223372036854775807";
  for (const std::string& text :
       {std::string("1 // 0"), std::string("1 % 0"), large + " + 1", "-" + large + " - 2",
        large + " * 2", std::string("L['y'].size()[0] + 1"), std::string("L['x'].size()[2]")}) {
    CAPTURE(text);
    CHECK(guard(text) == std::nullopt);
  }
  CHECK(guard("-" + large + " - 1") == std::numeric_limits<std::int64_t>::min());
  CHECK(guard("(-" + large + " - 1) // -1") == std::nullopt);
}

TEST_CASE("size expression: sizes of SymPy have the values of Python") {
  CHECK(size("Integer(5)") == 5);
  CHECK(size("Symbol('s0', integer=True)") == -7);
  CHECK(size("Symbol('s1', integer=True)") == std::nullopt);
  CHECK(size("Add(Integer(2), Symbol('s0', integer=True), Integer(1))") == -4);
  CHECK(size("Mul(Integer(-2), Symbol('s0'))") == 14);
  CHECK(size("FloorDiv(Symbol('s0'), Integer(2))") == -4);
  CHECK(size("Mod(Symbol('s0'), Integer(4))") == 1);
  CHECK(size("PythonMod(Symbol('s0'), Integer(4))") == 1);
  CHECK(size("Min(Symbol('s0'), Integer(4))") == -7);
  CHECK(size("Max(Symbol('s0'), Integer(4))") == 4);
  std::set<std::string> symbols;
  const auto sum =
      SizeExpression::parse_srepr("Add(Symbol('a'), Mul(Symbol('b'), Symbol('a')))", "");
  sum.collect_symbols(symbols);
  CHECK(symbols == std::set<std::string>{"a", "b"});
  CHECK(sum.symbol().empty());
  CHECK(SizeExpression::parse_srepr("Symbol('a')", "").symbol() == "a");
}

TEST_CASE("size expression: unsupported expressions are refused") {
  std::string chain = "1";
  for (int i = 0; i < 1001; ++i) chain += "+1";
  for (const std::string& text :
       {std::string(), std::string("1 +"), std::string("2 ** 3"), std::string("(1"),
        std::string("1)"), std::string("x"), std::string("L['z'].size()[0]"),
        std::string("L['flat_args'][2].size()[0]"), std::string("L['x'].shape[0]"),
        std::string("99999999999999999999"), std::string("min(1"), std::string("1 == 1 == 1"),
        std::string(70, '(') + "1" + std::string(70, ')'), std::string(70, '-') + "1", chain}) {
    CAPTURE(text);
    CHECK(code_of([&] { SizeExpression::parse_guard(text, kInputs, "test"); }) == "exported.graph");
  }
  std::string nested = "Integer(1)";
  for (int i = 0; i < 70; ++i) nested = "Add(" + nested + ")";
  for (const std::string& text :
       {std::string(), std::string("Pow(Integer(2), Integer(3))"), std::string("Integer(x)"),
        std::string("Integer(1)x"), std::string("Add()"), std::string("Symbol(s0)"), nested}) {
    CAPTURE(text);
    CHECK(code_of([&] { SizeExpression::parse_srepr(text, "test"); }) == "exported.graph");
  }
  CHECK(code_of([] { SizeExpression::parse_srepr("Integer(1) ", "test"); }) == "none");  // a blank
}

}  // namespace exported_size_expression_test
