// The models WordPiece and WordLevel.
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "tokenizers/pipeline/model.h"
#include "tokenizers/word_piece.h"

namespace hasten::tokenizers {
namespace {

std::vector<std::pair<std::string, std::int32_t>> with_ids(const std::vector<std::string>& tokens) {
  std::vector<std::pair<std::string, std::int32_t>> rows;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    rows.emplace_back(tokens[i], static_cast<std::int32_t>(i));
  return rows;
}

class WordPieceModel : public WordModel {
 public:
  WordPieceModel(std::vector<std::string> tokens, const WordPieceOptions& options)
      : vocabulary_(with_ids(tokens)), pieces_(std::move(tokens), options) {}

  const TokenTable& vocabulary() const noexcept override { return vocabulary_; }

  void split(std::string_view word, ModelScratch& memory,
             std::vector<WordPart>& parts) const override {
    std::vector<std::int32_t> ids;
    memory.ends.clear();
    pieces_.split(word, ids, &memory.ends);
    std::uint32_t begin = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      parts.push_back({ids[i], begin, memory.ends[i]});
      begin = memory.ends[i];
    }
  }

 private:
  TokenTable vocabulary_;
  WordPiece pieces_;
};

class WordLevelModel : public WordModel {
 public:
  WordLevelModel(TokenTable vocabulary, const std::string& unk_token)
      : vocabulary_(std::move(vocabulary)),
        unk_token_(unk_token),
        unk_id_(vocabulary_.find(unk_token)) {}

  const TokenTable& vocabulary() const noexcept override { return vocabulary_; }

  void split(std::string_view word, ModelScratch&, std::vector<WordPart>& parts) const override {
    const std::int32_t id = vocabulary_.find(word);
    if (id == TokenTable::kNone && unk_id_ == TokenTable::kNone) {
      throw DataError("tokenizers.missing-token",
                      {.what = str("the vocabulary has neither \"", utf8_prefix(word, 100),
                                   "\" nor the unknown token \"", unk_token_, "\""),
                       .hint = "check that the vocabulary belongs to this model"});
    }
    parts.push_back(
        {id == TokenTable::kNone ? unk_id_ : id, 0, static_cast<std::uint32_t>(word.size())});
  }

 private:
  TokenTable vocabulary_;
  std::string unk_token_;
  std::int32_t unk_id_;
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece(std::vector<std::string> tokens,
                                           const std::string& unk_token, const std::string& prefix,
                                           std::int64_t longest_word) {
  return std::make_unique<WordPieceModel>(
      std::move(tokens), WordPieceOptions{.unk_token = unk_token,
                                          .continuing_subword_prefix = prefix,
                                          .max_input_chars_per_word = longest_word});
}

std::unique_ptr<WordModel> make_word_level(TokenTable vocabulary, const std::string& unk_token) {
  return std::make_unique<WordLevelModel>(std::move(vocabulary), unk_token);
}

}  // namespace hasten::tokenizers
