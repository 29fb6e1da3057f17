#include "exported/symbolic.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "hasten/base/error.h"

namespace hasten::exported {
namespace symbols {
namespace {

using c10::IValue;
using Values = std::vector<IValue>;

[[noreturn]] void fail_symbol(const std::string& got, const std::string& expected) {
  throw DataError("exported.graph",
                  {.what = "arithmetic with sizes", .got = got, .expected = expected});
}

bool is_integral(const IValue& value) { return value.isInt() || value.isBool(); }

std::int64_t integer_of(const IValue& value) {
  if (value.isInt()) return value.toInt();
  if (value.isBool()) return value.toBool() ? 1 : 0;
  fail_symbol(value.tagKind(), "an integer");
}

double double_of(const IValue& value) {
  if (value.isDouble()) return value.toDouble();
  return static_cast<double>(integer_of(value));
}

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_symbol("a division by zero", "another divisor");
  if (b == -1) return static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a));
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Applies `integers` if both numbers are integers, otherwise `doubles`.
template <class Integers, class Doubles>
IValue arithmetic(const Values& v, Integers integers, Doubles doubles) {
  if (is_integral(v[0]) && is_integral(v[1]))
    return static_cast<std::int64_t>(integers(integer_of(v[0]), integer_of(v[1])));
  return doubles(double_of(v[0]), double_of(v[1]));
}

template <class Compare>
IValue compare(const Values& v, Compare ordered) {
  if (is_integral(v[0]) && is_integral(v[1])) return ordered(integer_of(v[0]), integer_of(v[1]));
  return ordered(double_of(v[0]), double_of(v[1]));
}

// Makes integers wrap around, because a hostile file must not cause undefined behaviour.
std::int64_t wrap(std::uint64_t value) { return static_cast<std::int64_t>(value); }
std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

IValue add(const Values& v) {
  return arithmetic(
      v, [](auto a, auto b) { return wrap(bits(a) + bits(b)); }, std::plus<double>());
}
IValue subtract(const Values& v) {
  return arithmetic(
      v, [](auto a, auto b) { return wrap(bits(a) - bits(b)); }, std::minus<double>());
}
IValue multiply(const Values& v) {
  return arithmetic(
      v, [](auto a, auto b) { return wrap(bits(a) * bits(b)); }, std::multiplies<double>());
}
IValue floor_divide(const Values& v) {
  return arithmetic(v, floor_quotient, [](double a, double b) { return std::floor(a / b); });
}
IValue modulo(const Values& v) {
  const std::int64_t a = integer_of(v[0]), b = integer_of(v[1]);
  return wrap(bits(a) - bits(floor_quotient(a, b)) * bits(b));
}
IValue power(const Values& v) {
  if (is_integral(v[0]) && is_integral(v[1]) && integer_of(v[1]) >= 0) {
    std::uint64_t result = 1, base = bits(integer_of(v[0]));
    for (std::uint64_t exponent = bits(integer_of(v[1])); exponent > 0; exponent >>= 1) {
      if (exponent & 1) result *= base;
      base *= base;
    }
    return wrap(result);
  }
  return std::pow(double_of(v[0]), double_of(v[1]));
}
IValue true_divide(const Values& v) {
  if (double_of(v[1]) == 0) fail_symbol("a division by zero", "another divisor");
  return double_of(v[0]) / double_of(v[1]);
}
IValue negate(const Values& v) {
  if (is_integral(v[0])) return wrap(0 - bits(integer_of(v[0])));
  return -double_of(v[0]);
}
IValue identity(const Values& v) { return v[0]; }
IValue equal(const Values& v) { return compare(v, std::equal_to<>()); }
IValue differ(const Values& v) { return compare(v, std::not_equal_to<>()); }
IValue at_most(const Values& v) { return compare(v, std::less_equal<>()); }
IValue at_least(const Values& v) { return compare(v, std::greater_equal<>()); }
IValue less(const Values& v) { return compare(v, std::less<>()); }
IValue greater(const Values& v) { return compare(v, std::greater<>()); }
IValue both(const Values& v) {
  if (v[0].isBool() && v[1].isBool()) return v[0].toBool() && v[1].toBool();
  return integer_of(v[0]) & integer_of(v[1]);
}
IValue either(const Values& v) {
  if (v[0].isBool() && v[1].isBool()) return v[0].toBool() || v[1].toBool();
  return integer_of(v[0]) | integer_of(v[1]);
}
IValue invert(const Values& v) { return integer_of(v[0]) == 0; }
IValue to_integer(const Values& v) {
  if (is_integral(v[0])) return integer_of(v[0]);
  const double value = std::trunc(double_of(v[0]));
  if (!(std::abs(value) < 9.2e18))
    fail_symbol(std::to_string(value), "a number that fits into 64 bits");
  return static_cast<std::int64_t>(value);
}
IValue to_double(const Values& v) { return double_of(v[0]); }
IValue choose(const Values& v) { return integer_of(v[0]) != 0 ? v[1] : v[2]; }
IValue larger(const Values& v) {
  return arithmetic(
      v, [](auto a, auto b) { return std::max(a, b); },
      [](double a, double b) { return std::max(a, b); });
}
IValue smaller(const Values& v) {
  return arithmetic(
      v, [](auto a, auto b) { return std::min(a, b); },
      [](double a, double b) { return std::min(a, b); });
}
IValue square_root(const Values& v) { return std::sqrt(double_of(v[0])); }

struct SymbolEntry {
  SymbolFunction function;
  std::size_t arity;
};

const std::map<std::string, SymbolEntry>& symbol_table() {
  static const std::map<std::string, SymbolEntry> table = {
      {"_operator.add", {add, 2}},
      {"_operator.sub", {subtract, 2}},
      {"_operator.mul", {multiply, 2}},
      {"_operator.floordiv", {floor_divide, 2}},
      {"_operator.mod", {modulo, 2}},
      {"_operator.pow", {power, 2}},
      {"_operator.truediv", {true_divide, 2}},
      {"_operator.neg", {negate, 1}},
      {"_operator.pos", {identity, 1}},
      {"_operator.eq", {equal, 2}},
      {"_operator.ne", {differ, 2}},
      {"_operator.le", {at_most, 2}},
      {"_operator.ge", {at_least, 2}},
      {"_operator.lt", {less, 2}},
      {"_operator.gt", {greater, 2}},
      {"_operator.and_", {both, 2}},
      {"_operator.or_", {either, 2}},
      {"math.trunc", {to_integer, 1}},
      {"torch.sym_not", {invert, 1}},
      {"torch.sym_int", {to_integer, 1}},
      {"torch.sym_float", {to_double, 1}},
      {"torch.sym_ite", {choose, 3}},
      {"torch.sym_max", {larger, 2}},
      {"torch.sym_min", {smaller, 2}},
      {"torch._sym_sqrt", {square_root, 1}}};
  return table;
}

}  // namespace
}  // namespace symbols

SymbolFunction symbol_function(const std::string& target) {
  const auto found = symbols::symbol_table().find(target);
  return found == symbols::symbol_table().end() ? nullptr : found->second.function;
}

std::size_t symbol_arity(const std::string& target) {
  return symbols::symbol_table().at(target).arity;
}

}  // namespace hasten::exported
