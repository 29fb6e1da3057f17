// The unigram model of SentencePiece: a word is split into the tokens whose scores have the largest
// sum.
// Source: Kudo, 2018 (arXiv 1804.10959), and Hugging Face tokenizers 0.23.3 (encode_optimized).
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/pipeline/model.h"
#include "tokenizers/trie.h"

namespace hasten::tokenizers {
namespace {

constexpr double kUnknownPenalty = 10;

class Unigram : public WordModel {
 public:
  Unigram(const std::vector<std::pair<std::string, double>>& tokens, std::int32_t unk_id,
          bool byte_fallback)
      : unk_id_(unk_id) {
    // If tokens are equal, the last one counts.
    std::unordered_map<std::string_view, std::int32_t> last;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      last[tokens[i].first] = static_cast<std::int32_t>(i);
    std::vector<std::pair<std::string, std::int32_t>> rows;
    std::vector<std::string> keys;
    double minimum = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      minimum = std::min(minimum, tokens[i].second);
      if (last[tokens[i].first] != static_cast<std::int32_t>(i)) continue;
      rows.emplace_back(tokens[i].first, static_cast<std::int32_t>(i));
      keys.push_back(tokens[i].first);
      ids_.push_back(static_cast<std::int32_t>(i));
      scores_.push_back(tokens[i].second);
    }
    unknown_score_ = minimum - kUnknownPenalty;
    vocabulary_ = TokenTable(rows);
    trie_ = Trie(keys);
    if (byte_fallback) byte_ids_ = byte_tokens(vocabulary_);
  }

  const TokenTable& vocabulary() const noexcept override { return vocabulary_; }

  void split(std::string_view word, ModelScratch& memory,
             std::vector<WordPart>& parts) const override {
    find_best_paths(word, memory.best_paths);
    const std::size_t before = parts.size();
    std::uint32_t unknown_end = 0;  // the end of unknown characters that follow, or 0
    auto end = static_cast<std::uint32_t>(word.size());
    // The parts are found from the end.
    while (end > 0) {
      const ModelScratch::BestPath& path = memory.best_paths[end];
      const auto begin = static_cast<std::uint32_t>(path.begin);
      if (path.id == unk_id_) {
        if (unknown_end == 0) unknown_end = end;
      } else {
        if (unknown_end > 0) add_unknown(word, end, unknown_end, parts);
        unknown_end = 0;
        parts.push_back({path.id, begin, end});
      }
      end = begin;
    }
    if (unknown_end > 0) add_unknown(word, 0, unknown_end, parts);
    std::reverse(parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end());
  }

 private:
  void find_best_paths(std::string_view word,
                       std::vector<ModelScratch::BestPath>& best_paths) const {
    best_paths.assign(word.size() + 1, {0, 0, -1});
    const auto offer = [&best_paths](std::size_t begin, std::size_t end, double score,
                                     std::int32_t id) {
      ModelScratch::BestPath& path = best_paths[end];
      if (path.begin >= 0 && score <= path.score) return;
      path = {score, id, static_cast<std::int32_t>(begin)};
    };
    for (std::size_t begin = 0; begin < word.size();) {
      const double before = best_paths[begin].score;
      const std::size_t one_character = decode_utf8(word.data() + begin).size;
      bool has_character = false;
      std::int32_t node = Trie::kRoot;
      for (std::size_t at = begin; at < word.size();) {
        node = trie_.step(node, word[at++]);
        if (node == Trie::kNone) break;
        const std::int32_t key = trie_.value(node);
        if (key == Trie::kNone) continue;
        const auto index = static_cast<std::size_t>(key);
        offer(begin, at, scores_[index] + before, ids_[index]);
        has_character |= at - begin == one_character;
      }
      if (!has_character) {
        const double score = unknown_score_ + before;
        const ModelScratch::BestPath& path = best_paths[begin + one_character];
        if (unk_id_ < 0 && (path.begin < 0 || score > path.score))
          throw_unknown(word.substr(begin, one_character));
        offer(begin, begin + one_character, score, unk_id_);
      }
      begin += one_character;
    }
  }

  [[noreturn]] static void throw_unknown(std::string_view character) {
    throw DataError("tokenizers.unknown-character",
                    {.what = str("the character \"", character, "\""),
                     .got = "no token for it in the vocabulary, and no unknown token (unk_id)",
                     .hint = "check that the vocabulary belongs to this model"});
  }

  // Adds the token of unknown characters, or of their bytes, in reverse order.
  void add_unknown(std::string_view word, std::uint32_t begin, std::uint32_t end,
                   std::vector<WordPart>& parts) const {
    const std::string_view text = word.substr(begin, end - begin);
    const std::int32_t known = vocabulary_.find(text);  // the characters together may be a token
    if (known != TokenTable::kNone) {
      parts.push_back({known, begin, end});
      return;
    }
    const auto id_of = [this](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    const bool has_bytes = !byte_ids_.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
      return id_of(c) != TokenTable::kNone;
    });
    if (!has_bytes) {
      parts.push_back({unk_id_, begin, end});
      return;
    }
    for (auto c = text.rbegin(); c != text.rend(); ++c) parts.push_back({id_of(*c), begin, end});
  }

  std::int32_t unk_id_;
  TokenTable vocabulary_;
  Trie trie_;  // contains the tokens, numbered like ids_ and scores_
  std::vector<std::int32_t> ids_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::vector<std::int32_t> byte_ids_;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram(const std::vector<std::pair<std::string, double>>& tokens,
                                        std::int32_t unk_id, bool byte_fallback) {
  return std::make_unique<Unigram>(tokens, unk_id, byte_fallback);
}

}  // namespace hasten::tokenizers
