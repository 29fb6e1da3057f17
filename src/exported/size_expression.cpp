#include "exported/size_expression.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/parse_number.h"
#include "hasten/base/error.h"

namespace hasten::exported {
namespace {

using Number = std::optional<std::int64_t>;

constexpr int kMaxExpressionDepth = 64;
// Each operation of a chain such as a + b + c adds a level, and evaluation is recursive.
constexpr int kMaxOperations = 1000;

Number add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? Number() : Number(result);
}
Number subtract(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_sub_overflow(a, b, &result) ? Number() : Number(result);
}
Number multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? Number() : Number(result);
}
// Rounds down, as in Python.
Number divide(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return b == 0 ? Number() : subtract(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
Number modulo(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return b == 0 ? Number() : Number(0);
  return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}
Number smaller(std::int64_t a, std::int64_t b) { return std::min(a, b); }
Number larger(std::int64_t a, std::int64_t b) { return std::max(a, b); }
Number equal(std::int64_t a, std::int64_t b) { return a == b; }
Number differ(std::int64_t a, std::int64_t b) { return a != b; }
Number less(std::int64_t a, std::int64_t b) { return a < b; }
Number greater(std::int64_t a, std::int64_t b) { return a > b; }
Number at_most(std::int64_t a, std::int64_t b) { return a <= b; }
Number at_least(std::int64_t a, std::int64_t b) { return a >= b; }
Number both(std::int64_t a, std::int64_t b) { return a != 0 && b != 0; }
Number either(std::int64_t a, std::int64_t b) { return a != 0 || b != 0; }

using Operation = Number (*)(std::int64_t, std::int64_t);
struct NamedOperation {
  std::string_view name;
  Operation operation;
};

}  // namespace

// Reads the characters of a text, and reports characters that it cannot read.
class ExpressionReader {
 public:
  ExpressionReader(const std::string& text, const std::string& place)
      : text_(text), place_(place) {}

 protected:
  bool take(std::string_view word) {
    skip_spaces();
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }
  // Reads `word`, unless a letter or a digit follows it.
  bool take_word(std::string_view word) {
    const std::size_t before = at_;
    if (!take(word)) return false;
    if (at_ == text_.size() || std::isalnum(static_cast<unsigned char>(text_[at_])) == 0)
      return true;
    at_ = before;
    return false;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail();
  }
  std::int64_t integer() {
    skip_spaces();
    const std::size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    const auto value =
        parse_number<std::int64_t>(std::string_view(text_).substr(begin, at_ - begin));
    if (!value) fail();
    return *value;
  }
  std::string until(char end) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string::npos) fail();
    const std::string word = text_.substr(at_, found - at_);
    at_ = found + 1;
    return word;
  }
  bool at_digit() {
    skip_spaces();
    return at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0;
  }
  void expect_end() {
    skip_spaces();
    if (at_ != text_.size()) fail();
  }
  void enter() {
    if (++depth_ > kMaxExpressionDepth) fail();
  }
  void leave() { --depth_; }
  void count_operation() {
    if (++operations_ > kMaxOperations) fail();
  }
  [[noreturn]] void fail() const {
    throw DataError("exported.graph", {.what = place_,
                                       .got = text_.substr(0, 200),
                                       .expected = "an expression of sizes that hasten can read"});
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  const std::string& text_;
  const std::string& place_;
  std::size_t at_ = 0;
  int depth_ = 0, operations_ = 0;
};

// Reads Python's operators by precedence.
class GuardParser : ExpressionReader {
 public:
  GuardParser(const std::string& text, const std::vector<std::string>& inputs,
              const std::string& place)
      : ExpressionReader(text, place), inputs_(inputs) {}

  SizeExpression parse() {
    SizeExpression whole = disjunction();
    expect_end();
    return whole;
  }

 private:
  SizeExpression join(SizeExpression left, Operation operation, SizeExpression right) {
    count_operation();
    SizeExpression joined;
    joined.operation_ = operation;
    joined.operands_.push_back(std::move(left));
    joined.operands_.push_back(std::move(right));
    return joined;
  }
  static SizeExpression constant(std::int64_t value) {
    SizeExpression expression;
    expression.constant_ = value;
    return expression;
  }

  SizeExpression disjunction() {
    enter();
    SizeExpression left = conjunction();
    while (take_word("or")) left = join(std::move(left), either, conjunction());
    leave();
    return left;
  }
  SizeExpression conjunction() {
    SizeExpression left = negation();
    while (take_word("and")) left = join(std::move(left), both, negation());
    return left;
  }
  SizeExpression negation() {
    bool negated = false;
    while (take_word("not")) negated = !negated;
    SizeExpression value = comparison();
    return negated ? join(std::move(value), equal, constant(0)) : value;
  }
  SizeExpression comparison() {
    static constexpr NamedOperation comparisons[] = {{"==", equal},   {"!=", differ},
                                                     {"<=", at_most}, {">=", at_least},
                                                     {"<", less},     {">", greater}};
    SizeExpression left = sum();
    for (const auto& [name, operation] : comparisons)
      if (take(name)) return join(std::move(left), operation, sum());
    return left;
  }
  SizeExpression sum() {
    SizeExpression left = product();
    while (true) {
      if (take("+"))
        left = join(std::move(left), add, product());
      else if (take("-"))
        left = join(std::move(left), subtract, product());
      else
        return left;
    }
  }
  SizeExpression product() {
    SizeExpression left = atom();
    while (true) {
      if (take("//"))
        left = join(std::move(left), divide, atom());
      else if (take("%"))
        left = join(std::move(left), modulo, atom());
      else if (take("**"))
        fail();
      else if (take("*"))
        left = join(std::move(left), multiply, atom());
      else
        return left;
    }
  }
  SizeExpression atom() {
    if (at_digit()) return constant(integer());
    if (take("(")) {
      SizeExpression inner = disjunction();
      expect(")");
      return inner;
    }
    if (take("-")) {
      enter();
      SizeExpression value = join(constant(0), subtract, atom());
      leave();
      return value;
    }
    if (take("min(")) return arguments(smaller);
    if (take("max(")) return arguments(larger);
    if (take_word("True")) return constant(1);
    if (take_word("False")) return constant(0);
    return size_of_input();
  }
  SizeExpression arguments(Operation operation) {
    SizeExpression left = disjunction();
    while (take(",")) left = join(std::move(left), operation, disjunction());
    expect(")");
    return left;
  }
  // L['x'].size()[0], or L['flat_args'][1].size()[0]
  SizeExpression size_of_input() {
    expect("L['");
    const std::string name = until('\'');
    expect("]");
    SizeExpression size;
    if (name == "flat_args") {
      expect("[");
      const std::int64_t index = integer();
      expect("]");
      if (index < 0 || static_cast<std::size_t>(index) >= inputs_.size()) fail();
      size.input_ = static_cast<std::size_t>(index);
    } else {
      const auto found = std::find(inputs_.begin(), inputs_.end(), name);
      if (found == inputs_.end()) fail();
      size.input_ = static_cast<std::size_t>(found - inputs_.begin());
    }
    expect(".size()[");
    size.constant_ = integer();
    expect("]");
    return size;
  }

  const std::vector<std::string>& inputs_;
};

class SreprParser : ExpressionReader {
 public:
  using ExpressionReader::ExpressionReader;

  SizeExpression parse() {
    SizeExpression whole = call();
    expect_end();
    return whole;
  }

 private:
  SizeExpression call() {
    static constexpr NamedOperation functions[] = {
        {"Add", add},          {"Mul", multiply}, {"FloorDiv", divide}, {"Mod", modulo},
        {"PythonMod", modulo}, {"Min", smaller},  {"Max", larger}};
    enter();
    const std::string name = until('(');
    SizeExpression value;
    if (name == "Symbol") {
      expect("'");
      value.symbol_ = until('\'');
      until(')');  // assumptions such as integer=True
    } else if (name == "Integer") {
      value.constant_ = integer();
      expect(")");
    } else {
      const auto* const found = std::find_if(std::begin(functions), std::end(functions),
                                             [&](const auto& each) { return name == each.name; });
      if (found == std::end(functions)) fail();
      value.operation_ = found->operation;
      do value.operands_.push_back(call());
      while (take(", "));
      expect(")");
    }
    leave();
    return value;
  }
};

SizeExpression SizeExpression::parse_guard(const std::string& text,
                                           const std::vector<std::string>& inputs,
                                           const std::string& place) {
  return GuardParser(text, inputs, place).parse();
}

SizeExpression SizeExpression::parse_srepr(const std::string& text, const std::string& place) {
  return SreprParser(text, place).parse();
}

void SizeExpression::collect_symbols(std::set<std::string>& symbols) const {
  if (!symbol_.empty()) symbols.insert(symbol_);
  for (const SizeExpression& operand : operands_) operand.collect_symbols(symbols);
}

std::optional<std::int64_t> SizeExpression::evaluate(const SizeValues& values) const {
  if (input_) return values.size(*input_, constant_);
  if (!symbol_.empty()) {
    const auto found = values.symbols.find(symbol_);
    return found == values.symbols.end() ? Number() : Number(found->second);
  }
  if (operation_ == nullptr) return constant_;
  Number result = operands_.front().evaluate(values);
  for (std::size_t i = 1; i < operands_.size() && result; ++i) {
    const Number next = operands_[i].evaluate(values);
    result = next ? operation_(*result, *next) : Number();
  }
  return result;
}

}  // namespace hasten::exported
