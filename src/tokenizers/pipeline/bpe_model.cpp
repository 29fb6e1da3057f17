// Byte-pair encoding: the characters of a word are merged in pairs until no merge applies. The
// merge of the lowest rank comes first, and the leftmost one among equal merges.
// Source: Sennrich et al., 2016 (arXiv 1508.07909), and Hugging Face tokenizers 0.23.3.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/pipeline/model.h"

namespace hasten::tokenizers {
namespace {

constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

// The rank and the result of each merge, by the ids of its two tokens.
class MergeTable {
 public:
  struct Result {
    std::uint32_t rank = kNoRank;
    std::int32_t id = TokenTable::kNone;
  };

  explicit MergeTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}
  // A later merge of the same pair replaces an earlier one.
  void insert(std::int32_t first, std::int32_t second, Result result) {
    Slot& slot = slots_[place_of(key_of(first, second))];
    slot = {key_of(first, second), result};
  }
  Result find(std::int32_t first, std::int32_t second) const noexcept {
    return slots_[place_of(key_of(first, second))].result;
  }

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Result result;
  };
  static constexpr std::uint64_t kEmpty = std::numeric_limits<std::uint64_t>::max();

  static std::uint64_t key_of(std::int32_t first, std::int32_t second) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(first)) << 32 |
           static_cast<std::uint32_t>(second);
  }
  std::size_t place_of(std::uint64_t key) const noexcept {
    std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask;
    return at;
  }

  std::vector<Slot> slots_;
};

class Bpe : public WordModel {
 public:
  Bpe(TokenTable vocabulary, const BpeOptions& options, const std::string& where)
      : vocabulary_(std::move(vocabulary)), options_(options), merges_(options.merges.size()) {
    if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
    if (options_.byte_fallback) byte_ids_ = byte_tokens(vocabulary_);
    read_merges(where);
    options_.merges = {};
    is_plain_ = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
    characters_.fill(TokenTable::kNone);
    for (char32_t c = 0; c < characters_.size(); ++c) {
      std::string text;
      append_utf8(c, text);
      characters_[c] = vocabulary_.find(text);
    }
  }

  const TokenTable& vocabulary() const noexcept override { return vocabulary_; }

  void split(std::string_view word, ModelScratch& memory,
             std::vector<WordPart>& parts) const override {
    if (options_.ignore_merges) {
      const std::int32_t id = vocabulary_.find(word);
      if (id != TokenTable::kNone) {
        parts.push_back({id, 0, static_cast<std::uint32_t>(word.size())});
        return;
      }
    }
    memory.symbols.clear();
    if (is_plain_) {
      read_symbols<true>(word, memory);
    } else {
      read_symbols<false>(word, memory);
    }
    if (memory.symbols.size() <= kShortWord)
      merge_short(memory);
    else
      merge_long(memory);
    std::uint32_t begin = 0;
    for (const ModelScratch::Symbol& symbol : memory.symbols) {
      if (symbol.size == 0) continue;
      parts.push_back({symbol.id, begin, begin + symbol.size});
      begin += symbol.size;
    }
  }

  // Cuts a word before each character that no merge appends to a different character, such as the
  // mark of SentencePiece for a blank. Such a character only begins tokens.
  void cut(std::string_view word, std::vector<std::uint32_t>& ends) const override {
    ends.clear();
    if (!is_plain_ || options_.ignore_merges || cut_bits_.empty())
      return WordModel::cut(word, ends);
    char32_t before = 0;
    for (std::size_t at = 0; at < word.size();) {
      const DecodedCharacter character = decode_utf8(word.data() + at);
      if (at > 0 && character.value != before && begins_only(character.value))
        ends.push_back(static_cast<std::uint32_t>(at));
      before = character.value;
      at += character.size;
    }
    ends.push_back(static_cast<std::uint32_t>(word.size()));
  }

 private:
  static constexpr std::size_t kShortWord = 32;

  bool begins_only(char32_t c) const noexcept { return (cut_bits_[c >> 6] >> (c & 63) & 1) != 0; }

  void read_merges(const std::string& where) {
    const auto id_of = [&](const std::string& token, std::size_t rank) {
      const std::int32_t id = vocabulary_.find(token);
      if (id != TokenTable::kNone) return id;
      throw DataError("tokenizers.bad-merge",
                      {.what = str(where, ".merges[", rank, "]: the token \"", token,
                                   "\" is not in the vocabulary"),
                       .hint = "use the vocabulary and the merges of one tokenizer"});
    };
    const std::string& prefix = options_.continuing_subword_prefix;
    std::vector<std::pair<char32_t, char32_t>> joined;  // the last and the first character
    for (std::size_t rank = 0; rank < options_.merges.size(); ++rank) {
      const auto& [first, second] = options_.merges[rank];
      const std::int32_t first_id = id_of(first, rank), second_id = id_of(second, rank);
      if (second.size() < prefix.size()) {
        throw DataError("tokenizers.bad-merge",
                        {.what = str(where, ".merges[", rank, "]: the second token"),
                         .got = str("\"", second, "\""),
                         .expected = str("one that begins with \"", prefix, "\"")});
      }
      const std::int32_t id = id_of(first + second.substr(prefix.size()), rank);
      merges_.insert(first_id, second_id, {static_cast<std::uint32_t>(rank), id});
      if (!first.empty() && !second.empty())
        joined.emplace_back(decode_utf8_before(first.data() + first.size()).value,
                            decode_utf8(second.data()).value);
    }
    find_cuts(joined);
  }

  // Finds the characters of the vocabulary that no merge joins to a different character before
  // them. Unknown characters do not count, because their tokens may be fused with the tokens before
  // them.
  void find_cuts(const std::vector<std::pair<char32_t, char32_t>>& joined) {
    cut_bits_.assign(0x110000 / 64, 0);
    for (const std::int32_t id : ids_of_characters()) {
      const char32_t c = decode_utf8(vocabulary_.token(id)->data()).value;
      cut_bits_[c >> 6] |= std::uint64_t{1} << (c & 63);
    }
    for (const auto& [before, after] : joined)
      if (before != after) forbid_cuts_before(after);
    // Tokens of bytes end with '>', and unknown tokens with the last character of unk_token, even
    // if the text has a different character there.
    if (options_.byte_fallback) forbid_cuts_before('>');
    if (options_.unk_token && !options_.unk_token->empty())
      forbid_cuts_before(
          decode_utf8_before(options_.unk_token->data() + options_.unk_token->size()).value);
  }
  void forbid_cuts_before(char32_t c) noexcept {
    cut_bits_[c >> 6] &= ~(std::uint64_t{1} << (c & 63));
  }

  std::vector<std::int32_t> ids_of_characters() const {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < vocabulary_.size(); ++i) {
      const auto [token, id] = vocabulary_.row(i);
      if (!token.empty() && decode_utf8(token.data()).size == token.size()) ids.push_back(id);
    }
    return ids;
  }

  static void add_symbol(ModelScratch& memory, std::int32_t id, std::uint32_t size) {
    const auto index = static_cast<std::int32_t>(memory.symbols.size());
    if (index > 0) memory.symbols.back().next = index;
    memory.symbols.push_back({id, size, index - 1, -1});
  }

  // Reads the first symbols of a word: its characters, bytes of characters that the vocabulary
  // lacks, and unknown tokens.
  template <bool is_plain>
  void read_symbols(std::string_view word, ModelScratch& memory) const {
    std::uint32_t unknown = 0;  // bytes of the unknown token that is still to be added
    for (std::size_t at = 0; at < word.size();) {
      const DecodedCharacter character = decode_utf8(word.data() + at);
      std::string_view text = word.substr(at, character.size);
      const bool is_first = at == 0;
      at += character.size;
      std::int32_t id;
      if constexpr (is_plain) {
        id = character.value < characters_.size() ? characters_[character.value]
                                                  : vocabulary_.find(text);
      } else {
        memory.text.clear();
        if (!is_first) memory.text += options_.continuing_subword_prefix;
        memory.text += text;
        if (at == word.size()) memory.text += options_.end_of_word_suffix;
        text = memory.text;
        id = vocabulary_.find(text);
      }
      if (id != TokenTable::kNone) {
        if (unknown > 0) add_symbol(memory, unk_id_, unknown);
        unknown = 0;
        add_symbol(memory, id, character.size);
      } else if (!add_bytes(text, memory) && options_.unk_token) {
        if (unk_id_ == TokenTable::kNone) throw_no_unk(text);
        if (unknown > 0 && !options_.fuse_unk) {
          add_symbol(memory, unk_id_, unknown);
          unknown = 0;
        }
        unknown += character.size;
      }
    }
    if (unknown > 0) add_symbol(memory, unk_id_, unknown);
  }

  // Files of byte-level tokenizers name an unknown token that is not in the vocabulary, so this is
  // not an error as long as every character is known.
  [[noreturn]] void throw_no_unk(std::string_view text) const {
    throw DataError("tokenizers.missing-token",
                    {.what = str("the vocabulary has neither \"", text,
                                 "\" nor the unknown token \"", *options_.unk_token, "\""),
                     .hint = "check that the vocabulary belongs to this model"});
  }

  bool add_bytes(std::string_view text, ModelScratch& memory) const {
    if (!options_.byte_fallback) return false;
    for (const char c : text)
      if (byte_ids_[static_cast<unsigned char>(c)] == TokenTable::kNone) return false;
    for (const char c : text) add_symbol(memory, byte_ids_[static_cast<unsigned char>(c)], 1);
    return true;
  }

  // Searches the best pair again after each merge, which is faster than a queue for few symbols.
  void merge_short(ModelScratch& memory) const {
    std::vector<ModelScratch::Symbol>& symbols = memory.symbols;
    std::size_t count = symbols.size();
    if (count < 2) return;
    std::array<MergeTable::Result, kShortWord> found;  // the merge of each symbol with the next one
    for (std::size_t i = 0; i + 1 < count; ++i)
      found[i] = merges_.find(symbols[i].id, symbols[i + 1].id);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i)
        if (found[i].rank < found[best].rank) best = i;
      if (found[best].rank == kNoRank) break;
      symbols[best].id = found[best].id;
      symbols[best].size += symbols[best + 1].size;
      for (std::size_t i = best + 1; i + 1 < count; ++i) {
        symbols[i] = symbols[i + 1];
        found[i] = found[i + 1];
      }
      --count;
      if (best + 1 < count) found[best] = merges_.find(symbols[best].id, symbols[best + 1].id);
      if (best > 0) found[best - 1] = merges_.find(symbols[best - 1].id, symbols[best].id);
    }
    symbols.resize(count);
  }

  static bool is_later(const ModelScratch::Merge& a, const ModelScratch::Merge& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  }

  void merge_long(ModelScratch& memory) const {
    std::vector<ModelScratch::Symbol>& symbols = memory.symbols;
    std::vector<ModelScratch::Merge>& queue = memory.merges;
    queue.clear();
    const auto add = [&](std::int32_t position, bool is_heap) {
      const ModelScratch::Symbol& symbol = symbols[static_cast<std::size_t>(position)];
      if (symbol.next < 0) return;
      const MergeTable::Result result =
          merges_.find(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
      if (result.rank == kNoRank) return;
      queue.push_back({result.rank, static_cast<std::uint32_t>(position), result.id});
      if (is_heap) std::push_heap(queue.begin(), queue.end(), is_later);
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) add(static_cast<std::int32_t>(i), false);
    std::make_heap(queue.begin(), queue.end(), is_later);
    while (!queue.empty()) {
      const ModelScratch::Merge merge = queue.front();
      std::pop_heap(queue.begin(), queue.end(), is_later);
      queue.pop_back();
      ModelScratch::Symbol& left = symbols[merge.position];
      if (left.size == 0 || left.next < 0) continue;
      ModelScratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
      if (merges_.find(left.id, right.id).id != merge.id) continue;  // one of them has changed
      left.id = merge.id;
      left.size += right.size;
      left.next = right.next;
      right.size = 0;
      if (left.next >= 0)
        symbols[static_cast<std::size_t>(left.next)].previous =
            static_cast<std::int32_t>(merge.position);
      if (left.previous >= 0) add(left.previous, true);
      add(static_cast<std::int32_t>(merge.position), true);
    }
  }

  TokenTable vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  std::int32_t unk_id_ = TokenTable::kNone;
  bool is_plain_ = true;
  std::vector<std::int32_t> byte_ids_;
  std::array<std::int32_t, 0x800> characters_{};  // the token of each of the first characters
  std::vector<std::uint64_t> cut_bits_;
};

}  // namespace

std::vector<std::int32_t> byte_tokens(const TokenTable& vocabulary) {
  constexpr const char* digits = "0123456789ABCDEF";
  std::vector<std::int32_t> ids;
  for (int byte = 0; byte < 256; ++byte)
    ids.push_back(
        vocabulary.find(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">"));
  return ids;
}

std::unique_ptr<WordModel> make_bpe(TokenTable vocabulary, const BpeOptions& options,
                                    const std::string& where) {
  return std::make_unique<Bpe>(std::move(vocabulary), options, where);
}

}  // namespace hasten::tokenizers
