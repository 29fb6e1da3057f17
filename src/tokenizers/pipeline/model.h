// File: tokenizers/pipeline/model.h
// The models of tokenizer.json, each of which splits a word into the tokens of its vocabulary.
//
//   std::vector<WordPart> parts;
//   model.split("unaffable", memory, parts);
//
// Thread rule: models are immutable; safe from many threads, each with its own memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenizers/pipeline/token_table.h"

namespace hasten::tokenizers {

// A token, and the bytes [begin, end) of its word that it stands for.
struct WordPart {
  std::int32_t id;
  std::uint32_t begin;
  std::uint32_t end;
};

// The memory of a model for one word at a time.
struct ModelScratch {
  // BPE keeps the symbols of a word and the queue of possible merges.
  struct Symbol {
    std::int32_t id;
    std::uint32_t size;  // in bytes; 0 if merged into the previous one
    std::int32_t previous;
    std::int32_t next;  // -1 if there is none
  };
  struct Merge {
    std::uint32_t rank;
    std::uint32_t position;
    std::int32_t id;
  };
  std::vector<Symbol> symbols;
  std::vector<Merge> merges;
  std::vector<std::uint32_t> ranks;
  // Unigram keeps the best path to each byte of a word.
  struct BestPath {
    double score;
    std::int32_t id;
    std::int32_t begin;  // -1 if there is none yet
  };
  std::vector<BestPath> best_paths;
  std::vector<std::uint32_t> ends;
  std::string text;
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the parts of a word, which is valid UTF-8 and not empty.
  virtual void split(std::string_view word, ModelScratch& memory,
                     std::vector<WordPart>& parts) const = 0;
  virtual const TokenTable& vocabulary() const noexcept = 0;
  // Replaces `ends` by the ends of segments of the word that may be split one by one with the same
  // result. Long words are looked up segment by segment, because segments repeat more often than
  // long words.
  virtual void cut(std::string_view word, std::vector<std::uint32_t>& ends) const {
    ends.assign(1, static_cast<std::uint32_t>(word.size()));
  }
};

struct BpeOptions {
  std::vector<std::pair<std::string, std::string>> merges;  // the first one has precedence
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // if true, a word of the vocabulary is one token
};
// Throws DataError "tokenizers.bad-merge" with `where` for a merge whose tokens are not in the
// vocabulary. Its split() throws DataError "tokenizers.missing-token" for an unknown character if
// the vocabulary lacks unk_token.
std::unique_ptr<WordModel> make_bpe(TokenTable vocabulary, const BpeOptions& options,
                                    const std::string& where);

// The tokens' scores are logarithms of probabilities. `unk_id` is -1 if there is no unknown token.
// In that case split() throws DataError "tokenizers.unknown-character" for a character that no
// token covers.
std::unique_ptr<WordModel> make_unigram(const std::vector<std::pair<std::string, double>>& tokens,
                                        std::int32_t unk_id, bool byte_fallback);

// The tokens of WordPiece must be in the order of their ids, without gaps.
std::unique_ptr<WordModel> make_word_piece(std::vector<std::string> tokens,
                                           const std::string& unk_token, const std::string& prefix,
                                           std::int64_t longest_word);

// split() throws DataError "tokenizers.missing-token" for an unknown word if the vocabulary lacks
// unk_token.
std::unique_ptr<WordModel> make_word_level(TokenTable vocabulary, const std::string& unk_token);

// Returns the ids of the tokens of all bytes, "<0x00>" to "<0xFF>", and -1 for each one that the
// vocabulary lacks.
std::vector<std::int32_t> byte_tokens(const TokenTable& vocabulary);

}  // namespace hasten::tokenizers
