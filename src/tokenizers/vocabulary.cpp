// Reads vocab.txt, and numbers added tokens.
#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "tokenizers/definition.h"

namespace hasten::tokenizers {
namespace {

std::string_view trim_end(std::string_view line) {
  while (!line.empty()) {
    const DecodedCharacter last = decode_utf8_before(line.data() + line.size());
    if (!Unicode::get().is(last.value, Unicode::white)) break;
    line.remove_suffix(last.size);
  }
  return line;
}

// Reads one token per line. White space at the end of a line, including a carriage return, is not
// part of the token, as in Hugging Face tokenizers.
std::vector<std::string> read_lines(const std::filesystem::path& file) {
  const std::string content = read_file(file);
  std::vector<std::string> tokens;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    const std::string_view line = std::string_view(content).substr(at, end - at);
    if (!is_utf8(line)) {
      throw DataError(
          "tokenizers.bad-vocabulary",
          {.what = str("line ", tokens.size() + 1, " of ", file.string(), " is not UTF-8"),
           .hint = "convert the file to UTF-8, or check that it is a vocabulary"});
    }
    tokens.emplace_back(trim_end(line));
    at = end + 1;
  }
  return tokens;
}

void check_no_duplicates(const std::vector<std::string>& tokens,
                         const std::filesystem::path& file) {
  std::unordered_map<std::string_view, std::size_t> seen;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto [first, is_new] = seen.emplace(tokens[i], i);
    if (is_new) continue;
    throw DataError("tokenizers.bad-vocabulary",
                    {.what = str("lines ", first->second + 1, " and ", i + 1, " of ", file.string(),
                                 " hold the same token \"", tokens[i], "\""),
                     .hint = tokens[i].empty() ? "remove the blank lines at its end"
                                               : "remove one of them, because a token has one id"});
  }
}

std::int32_t find_required(const std::vector<std::string>& tokens, const std::string& token,
                           const char* name, const std::filesystem::path& file) {
  const auto found = std::find(tokens.begin(), tokens.end(), token);
  if (found == tokens.end()) {
    throw DataError(
        "tokenizers.missing-token",
        {.what = str(file.string(), " lacks the ", name, " \"", token, "\""),
         .hint =
             "set this token to one of the file's, in tokenizer_config.json or TokenizerOptions"});
  }
  return static_cast<std::int32_t>(found - tokens.begin());
}

// Adds the special tokens of the vocabulary to the added tokens, because texts may contain them.
void add_special_tokens(const std::vector<std::string>& vocabulary, TokenizerOptions& options) {
  std::vector<AddedToken> specials;
  for (const std::string* token : {&options.unk_token, &options.sep_token, &options.cls_token,
                                   &options.pad_token, &options.mask_token}) {
    const auto same = [token](const AddedToken& added) { return added.content == *token; };
    const bool listed = std::any_of(specials.begin(), specials.end(), same) ||
                        std::any_of(options.added_tokens.begin(), options.added_tokens.end(), same);
    if (!listed && std::find(vocabulary.begin(), vocabulary.end(), *token) != vocabulary.end())
      specials.push_back({.id = -1, .content = *token, .special = true});
  }
  options.added_tokens.insert(options.added_tokens.begin(), specials.begin(), specials.end());
}

}  // namespace

void assign_added_token_ids(const std::vector<std::string>& vocabulary, const std::string& where,
                            std::vector<AddedToken>& tokens) {
  // The id of each added token's text in the vocabulary, or -1 if the vocabulary lacks it.
  std::unordered_map<std::string_view, std::int32_t> ids;
  for (const AddedToken& token : tokens) ids.emplace(token.content, -1);
  for (std::size_t i = 0; i < vocabulary.size() && !ids.empty(); ++i) {
    const auto found = ids.find(vocabulary[i]);
    if (found != ids.end()) found->second = static_cast<std::int32_t>(i);
  }
  assign_added_token_ids([&ids](const std::string& token) { return ids.at(token); },
                         vocabulary.size(), where, tokens);
}

void assign_added_token_ids(const std::function<std::int32_t(const std::string&)>& find,
                            std::size_t size, const std::string& where,
                            std::vector<AddedToken>& tokens) {
  std::unordered_set<std::string_view> seen;
  auto next = static_cast<std::int32_t>(size);
  for (AddedToken& token : tokens) {
    const auto throw_invalid = [&](const std::string& what, const std::string& got,
                                   const std::string& expected) {
      throw DataError("tokenizers.bad-added-token",
                      {.what = where + ": " + what, .got = got, .expected = expected});
    };
    if (token.content.empty()) throw_invalid("an added token without text", "", "");
    if (!is_utf8(token.content)) throw_invalid("an added token that is not UTF-8", "", "");
    if (!seen.insert(token.content).second)
      throw_invalid("\"" + token.content + "\" is listed twice", "", "");
    const std::int32_t known = find(token.content);
    const std::int32_t id = known != -1 ? known : next++;
    if (token.id != -1 && token.id != id) {
      throw_invalid(
          "the id of \"" + token.content + "\"", str(token.id),
          known != -1
              ? str(id, ", as in the vocabulary")
              : str(id, ", the next one after the vocabulary and the added tokens before it"));
    }
    token.id = id;
  }
}

Definition definition_from_vocab(const std::filesystem::path& file,
                                 const TokenizerOptions& options) {
  if (options.max_input_chars_per_word < 0) {
    throw UsageError("tokenizers.bad-options",
                     {.what = "TokenizerOptions::max_input_chars_per_word",
                      .got = str(options.max_input_chars_per_word),
                      .expected = "0 or more"});
  }
  Definition definition{.options = options, .vocabulary = read_lines(file)};
  check_no_duplicates(definition.vocabulary, file);
  const std::int32_t cls =
      find_required(definition.vocabulary, options.cls_token, "cls_token", file);
  const std::int32_t sep =
      find_required(definition.vocabulary, options.sep_token, "sep_token", file);
  find_required(definition.vocabulary, options.unk_token, "unk_token", file);
  definition.templates = bert_templates(options.cls_token, cls, options.sep_token, sep);
  definition.decoder = DecoderOptions{.prefix = options.continuing_subword_prefix, .cleanup = true};
  add_special_tokens(definition.vocabulary, definition.options);
  assign_added_token_ids(definition.vocabulary, file.string(), definition.options.added_tokens);
  return definition;
}

}  // namespace hasten::tokenizers
