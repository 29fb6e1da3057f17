#include "tokenizers/clean_up.h"

#include <array>
#include <utility>

#include "base/utf8.h"

namespace hasten::tokenizers {
namespace {

using Replacement = std::pair<std::string_view, std::string_view>;
constexpr std::array kPunctuation{Replacement{" .", "."},  Replacement{" ?", "?"},
                                  Replacement{" !", "!"},  Replacement{" ,", ","},
                                  Replacement{" ' ", "'"}, Replacement{" n't", "n't"},
                                  Replacement{" 'm", "'m"}};
constexpr std::array kContractions{Replacement{" 's", "'s"}, Replacement{" 've", "'ve"},
                                   Replacement{" 're", "'re"}};

void clean_up(std::string& text, bool one_token) {
  if (text.find(' ') == std::string::npos) return;
  for (const auto& [from, to] : kPunctuation) replace_all(text, from, to);
  if (one_token) replace_all(text, " do not", " don't");
  for (const auto& [from, to] : kContractions) replace_all(text, from, to);
}

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string out;
  std::size_t copied = 0;
  for (; at != std::string::npos; at = text.find(from, copied)) {
    out.append(text, copied, at - copied);
    out += to;
    copied = at + from.size();
  }
  out.append(text, copied);
  text = std::move(out);
}

void replace_text(std::string& text, std::string_view from, std::string_view to) {
  if (!from.empty()) return replace_all(text, from, to);
  std::string out(to);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = decode_utf8(text.data() + at).size;
    out.append(text, at, size);
    out += to;
    at += size;
  }
  text = std::move(out);
}

void clean_up_text(std::string& text) { clean_up(text, false); }
void clean_up_token(std::string& token) { clean_up(token, true); }

}  // namespace hasten::tokenizers
