#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizers/pipeline/pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <span>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/pipeline/pattern_syntax.h"

namespace hasten::tokenizers {
namespace {

constexpr std::size_t kInitialStackBytes = 32 << 10, kMaxStackBytes = 16 << 20;
constexpr std::uint32_t kMatchLimit = 10'000'000, kHeapLimitKiB = 64 << 10;

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string message_of(int error) {
  char text[256] = {};
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

std::string quoted_regex(std::string_view regex) {
  return "\"" + std::string(utf8_prefix(regex, 200)) + "\"";
}

}  // namespace

struct Matcher::Memory {
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(kInitialStackBytes, kMaxStackBytes, nullptr)};
  std::string codes;                     // the codes of a text that is not ASCII
  std::vector<std::uint32_t> positions;  // the byte at which each of them begins, and the end

  Memory() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
    // There is no stack if PCRE2 was built without its compiler.
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

Matcher::Matcher() = default;
Matcher::~Matcher() = default;
Matcher::Matcher(Matcher&&) noexcept = default;

Matcher::Memory& Matcher::memory() {
  if (!memory_) memory_ = std::make_unique<Memory>();
  return *memory_;
}

CharacterCodes::CharacterCodes(const std::vector<Row>& rows)
    : codes_([&, row = std::size_t{0}](char32_t first, std::span<std::uint8_t> page) mutable {
        for (char32_t i = 0; i < page.size();) {
          const char32_t c = first + i;
          if (c < 0x80) {
            page[i++] = static_cast<std::uint8_t>(c);
            continue;
          }
          while (row + 1 < rows.size() && rows[row + 1].first <= c) ++row;
          std::size_t count = page.size() - i;
          if (row + 1 < rows.size()) count = std::min<std::size_t>(count, rows[row + 1].first - c);
          std::fill_n(page.begin() + i, count, rows[row].code);
          i += static_cast<char32_t>(count);
        }
      }) {}

struct Pattern::Compiled {
  Owned<pcre2_code> code;
  bool is_fast = false;  // compiled to machine code
};

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

Pattern::Pattern(std::string_view regex, const std::string& where)
    : Pattern(regex, where, translate_pattern(regex, where)) {}

Pattern::Pattern(std::string_view regex, const std::string& where, const Translation& translation)
    : regex_(regex),
      where_(where),
      codes_(translation.rows),
      compiled_(std::make_unique<Compiled>()) {
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 200);
  int error = 0;
  PCRE2_SIZE at = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translation.regex.data()),
                                      translation.regex.size(), 0, &error, &at, context.get()));
  if (!compiled_->code) {
    throw DataError("tokenizers.bad-pattern",
                    {.what = str(where_, ": the regular expression ", quoted_regex(regex_)),
                     .got = message_of(error),
                     .expected = "an expression that PCRE2 compiles"});
  }
  compiled_->is_fast = pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE) == 0;
  std::uint32_t empty = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  matches_empty_ = empty != 0;
}

bool Pattern::find_next(std::string_view codes, std::size_t from, Matcher& matcher,
                        Match& match) const {
  Matcher::Memory& memory = matcher.memory();
  const auto* const text = reinterpret_cast<PCRE2_SPTR>(codes.data());
  const auto run = compiled_->is_fast ? pcre2_jit_match : pcre2_match;
  const int found = run(compiled_->code.get(), text, codes.size(), from, 0, memory.data.get(),
                        memory.context.get());
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw DataError("tokenizers.bad-pattern", {.what = str(where_, ": the regular expression ",
                                                           quoted_regex(regex_), " on a text"),
                                               .got = message_of(found),
                                               .hint = "use an expression with less backtracking"});
  }
  const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(memory.data.get());
  match = {static_cast<std::uint32_t>(ends[0]), static_cast<std::uint32_t>(ends[1])};
  return true;
}

void Pattern::find_all(std::string_view text, Matcher& matcher, std::vector<Match>& matches) const {
  matches.clear();
  Matcher::Memory& memory = matcher.memory();
  const bool is_ascii = ascii_prefix(text) == text.size();
  std::string_view codes = text;
  if (!is_ascii) {
    memory.codes.resize(text.size());
    memory.positions.resize(text.size() + 1);
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); ++count) {
      const DecodedCharacter character = decode_utf8(text.data() + at);
      memory.codes[count] = static_cast<char>(codes_.of(character.value));
      memory.positions[count] = static_cast<std::uint32_t>(at);
      at += character.size;
    }
    memory.positions[count] = static_cast<std::uint32_t>(text.size());
    codes = std::string_view(memory.codes).substr(0, count);
  }
  std::int64_t last = -1;  // the end of the previous match
  Match match{};
  for (std::size_t from = 0; from <= codes.size() && find_next(codes, from, matcher, match);) {
    if (match.begin == match.end && match.end == last) {
      ++from;
      continue;
    }
    from = match.end;
    last = match.end;
    matches.push_back(is_ascii ? match
                               : Match{memory.positions[match.begin], memory.positions[match.end]});
  }
}

}  // namespace hasten::tokenizers
