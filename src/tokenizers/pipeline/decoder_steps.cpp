#include "tokenizers/pipeline/decoder_steps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/utf8.h"
#include "tokenizers/clean_up.h"
#include "tokenizers/pipeline/aligned_text.h"
#include "tokenizers/pipeline/normalizer_steps.h"

namespace hasten::tokenizers {
namespace {

struct ByteLevelDecoder : DecoderStep {
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    std::string bytes;
    for (const std::string& token : tokens) append(token, bytes);
    tokens.assign(1, is_utf8(bytes) ? bytes : repair_utf8(bytes));
  }
  // A token with a letter that stands for no byte is appended as it is.
  static void append(const std::string& token, std::string& bytes) {
    const std::size_t before = bytes.size();
    for (std::size_t at = 0; at < token.size();) {
      const DecodedCharacter character = decode_utf8(token.data() + at);
      const int byte = byte_of_letter(character.value);
      if (byte < 0) {
        bytes.resize(before);
        bytes += token;
        return;
      }
      bytes += static_cast<char>(byte);
      at += character.size;
    }
  }
};

struct WordPieceDecoder : DecoderStep {
  WordPieceDecoder(std::string continuing, bool cleans)
      : prefix(std::move(continuing)), cleans_up(cleans) {}
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(prefix))
        tokens[i].erase(0, prefix.size());
      else if (i > 0)
        tokens[i].insert(0, " ");
      if (cleans_up) clean_up_token(tokens[i]);
    }
  }
  std::string prefix;
  bool cleans_up;
};

struct MetaspaceDecoder : DecoderStep {
  MetaspaceDecoder(char32_t c, bool drops) : drops_first(drops) { append_utf8(c, replacement); }
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_all(tokens[i], replacement, i == 0 && drops_first ? "" : " ");
  }
  std::string replacement;
  bool drops_first;
};

struct BpeDecoder : DecoderStep {
  explicit BpeDecoder(std::string end) : suffix(std::move(end)) {}
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_text(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
  }
  std::string suffix;
};

struct ByteFallbackDecoder : DecoderStep {
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    std::vector<std::string> out;
    std::string bytes;
    const auto flush = [&] {
      if (is_utf8(bytes)) {
        if (!bytes.empty()) out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      const int byte = byte_of(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      flush();
      out.push_back(std::move(token));
    }
    flush();
    tokens = std::move(out);
  }
  // Returns the byte of "<0xHH>", or -1.
  static int byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
    // Rust's from_str_radix, by which Hugging Face reads it, permits a sign.
    if (token[3] == '+') return digit_of(token[4]);
    const int high = digit_of(token[3]), low = digit_of(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }
  static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  }
};

struct FuseDecoder : DecoderStep {
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    tokens.assign(1, std::accumulate(tokens.begin(), tokens.end(), std::string()));
  }
};

struct StripDecoder : DecoderStep {
  StripDecoder(char32_t character, std::size_t from_left, std::size_t from_right)
      : left(from_left), right(from_right) {
    append_utf8(character, content);
  }
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    for (std::string& token : tokens) {
      std::size_t begin = 0, end = token.size();
      const std::string_view text = token;
      for (std::size_t i = 0; i < left && text.substr(begin).starts_with(content); ++i)
        begin += content.size();
      for (std::size_t i = 0; i < right && end > begin && text.substr(0, end).ends_with(content);
           ++i)
        end -= content.size();
      token = token.substr(begin, end - begin);
    }
  }
  std::string content;
  std::size_t left, right;
};

struct ReplaceTextDecoder : DecoderStep {
  ReplaceTextDecoder(std::string old_text, std::string new_text)
      : from(std::move(old_text)), to(std::move(new_text)) {}
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    for (std::string& token : tokens) {
      require_text_size(token.size() / from.size() * to.size());  // if it has nothing else
      replace_all(token, from, to);
    }
  }
  std::string from, to;  // `from` is not empty
};

struct ReplacePatternDecoder : DecoderStep {
  ReplacePatternDecoder(Pattern old_text, std::string new_text)
      : from(std::move(old_text)), to(std::move(new_text)) {}
  void run(std::vector<std::string>& tokens, Matcher& matcher) const override {
    std::vector<Match> matches;
    for (std::string& token : tokens) {
      if (token.empty()) continue;
      from.find_all(token, matcher, matches);
      require_text_size(matches.size() * to.size());
      std::string out;
      std::size_t at = 0;
      for (const Match& match : matches) {
        out.append(token, at, match.begin - at);
        out += to;
        at = match.end;
      }
      token = out.append(token, at);
    }
  }
  Pattern from;
  std::string to;
};

// Equal tokens that follow one another count once, because a model trained with CTC repeats tokens.
struct CtcDecoder : DecoderStep {
  CtcDecoder(std::string pad_token, std::string delimiter, bool cleans)
      : pad(std::move(pad_token)), word_delimiter(std::move(delimiter)), cleans_up(cleans) {}
  void run(std::vector<std::string>& tokens, Matcher&) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_text(token, pad, "");
      if (!cleans_up) continue;
      clean_up_token(token);
      replace_text(token, word_delimiter, " ");
    }
    std::erase(tokens, "");
  }
  std::string pad, word_delimiter;
  bool cleans_up;
};

}  // namespace

std::unique_ptr<DecoderStep> make_byte_level_decoder() {
  return std::make_unique<ByteLevelDecoder>();
}
std::unique_ptr<DecoderStep> make_word_piece_decoder(std::string prefix, bool cleans_up) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleans_up);
}
std::unique_ptr<DecoderStep> make_metaspace_decoder(char32_t replacement, bool drops_first) {
  return std::make_unique<MetaspaceDecoder>(replacement, drops_first);
}
std::unique_ptr<DecoderStep> make_bpe_decoder(std::string suffix) {
  return std::make_unique<BpeDecoder>(std::move(suffix));
}
std::unique_ptr<DecoderStep> make_byte_fallback_decoder() {
  return std::make_unique<ByteFallbackDecoder>();
}
std::unique_ptr<DecoderStep> make_fuse_decoder() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<DecoderStep> make_strip_decoder(char32_t character, std::size_t left,
                                                std::size_t right) {
  return std::make_unique<StripDecoder>(character, left, right);
}
std::unique_ptr<DecoderStep> make_replace_decoder(std::string from, std::string to) {
  return std::make_unique<ReplaceTextDecoder>(std::move(from), std::move(to));
}
std::unique_ptr<DecoderStep> make_replace_decoder(Pattern from, std::string to) {
  return std::make_unique<ReplacePatternDecoder>(std::move(from), std::move(to));
}
std::unique_ptr<DecoderStep> make_ctc_decoder(std::string pad, std::string word_delimiter,
                                              bool cleans_up) {
  return std::make_unique<CtcDecoder>(std::move(pad), std::move(word_delimiter), cleans_up);
}

}  // namespace hasten::tokenizers
