#include "hasten/tokenizers/tokenizer.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/machine/model_folder.h"
#include "tokenizers/clean_up.h"
#include "tokenizers/definition.h"
#include "tokenizers/encode_options.h"
#include "tokenizers/encode_rows.h"
#include "tokenizers/pipeline/pipeline.h"
#include "tokenizers/pipeline/pipeline_json.h"

namespace hasten {

using tokenizers::Pipeline;
using tokenizers::PipelineEncoder;
using tokenizers::TextTokens;

struct Tokenizer::State {
  static constexpr std::size_t kMaxIdleEncoders = 64;

  State() { encoders.reserve(kMaxIdleEncoders); }  // so that returning one cannot fail

  Pipeline pipeline;
  SpecialTokens special;

  // Encoders that no thread uses now. They keep their caches of words.
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<PipelineEncoder>> encoders;
};

namespace {

// Borrows an encoder of the tokenizer and encodes one row after another.
class PipelineRowEncoder {
 public:
  PipelineRowEncoder(const Tokenizer::State& state, const EncodeOptions& options, bool is_pair)
      : state_(state),
        options_(tokenizers::resolve(options, state.pipeline.options, state.pipeline.post.templates,
                                     is_pair)),
        trims_(options.offsets && !state.pipeline.post.trims.empty()) {
    const std::lock_guard lock(state_.mutex);
    if (state_.encoders.empty()) return;
    encoder_ = std::move(state_.encoders.back());
    state_.encoders.pop_back();
  }
  ~PipelineRowEncoder() {
    if (!encoder_ || encoder_->has_large_buffers()) return;
    const std::lock_guard lock(state_.mutex);
    if (state_.encoders.size() < Tokenizer::State::kMaxIdleEncoders)
      state_.encoders.push_back(std::move(encoder_));
  }
  PipelineRowEncoder(const PipelineRowEncoder&) = delete;
  PipelineRowEncoder& operator=(const PipelineRowEncoder&) = delete;

  Encoding encode(std::string_view text) {
    run(text, token_limit(), first_, first_blanks_);
    trim(nullptr);
    return tokenizers::assemble(state_.pipeline.post.templates, first_, nullptr, options_);
  }
  // The options must ask for offsets.
  Encoding encode_words(std::span<const std::string> words) {
    first_.clear();
    first_blanks_.clear();
    for (std::size_t i = 0; i < words.size() && first_.ids.size() < token_limit(); ++i) {
      run(words[i], kUnlimited, second_, second_blanks_);
      first_.ids.insert(first_.ids.end(), second_.ids.begin(), second_.ids.end());
      first_.offsets.insert(first_.offsets.end(), second_.offsets.begin(), second_.offsets.end());
      first_.words.resize(first_.ids.size(), static_cast<std::int32_t>(i));
      if (trims_)
        first_blanks_.insert(first_blanks_.end(), second_blanks_.begin(), second_blanks_.end());
    }
    trim(nullptr);
    return tokenizers::assemble(state_.pipeline.post.templates, first_, nullptr, options_);
  }
  Encoding encode(std::string_view text, std::string_view pair) {
    run(text, kUnlimited, first_, first_blanks_);
    run(pair, kUnlimited, second_, second_blanks_);
    trim(&second_);
    return tokenizers::assemble(state_.pipeline.post.templates, first_, &second_, options_);
  }

 private:
  static constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

  void run(std::string_view text, std::size_t limit, TextTokens& tokens,
           tokenizers::BlankCounts& blanks) {
    if (!encoder_) encoder_ = std::make_unique<PipelineEncoder>();
    encoder_->run(state_.pipeline, text, options_.offsets, limit, tokens,
                  trims_ ? &blanks : nullptr);
  }
  // A single text that is cut at its end needs no tokens beyond the cut.
  std::size_t token_limit() const {
    const bool cut =
        options_.truncation != Truncation::none && options_.truncation_side != Side::left;
    return cut ? static_cast<std::size_t>(options_.max_length) : kUnlimited;
  }
  void trim(TextTokens* second) {
    if (!trims_) return;
    const tokenizers::PostProcessing& post = state_.pipeline.post;
    std::size_t first_kept = first_.ids.size(), second_kept = second ? second->ids.size() : 0;
    if (options_.truncation != Truncation::none && options_.truncation_side == Side::left) {
      const std::size_t specials =
          options_.add_special_tokens
              ? tokenizers::special_count(post.templates.for_pair(second != nullptr))
              : 0;
      std::tie(first_kept, second_kept) = tokenizers::kept_lengths(
          first_kept, second_kept, static_cast<std::size_t>(options_.max_length) - specials,
          options_.truncation);
    }
    tokenizers::trim_offsets(post, first_blanks_, first_.ids.size() - first_kept, first_);
    if (second != nullptr)
      tokenizers::trim_offsets(post, second_blanks_, second->ids.size() - second_kept, *second);
  }

  const Tokenizer::State& state_;
  const EncodeOptions options_;
  const bool trims_;
  std::unique_ptr<PipelineEncoder> encoder_;
  TextTokens first_, second_;
  tokenizers::BlankCounts first_blanks_, second_blanks_;
};

SpecialTokens special_tokens_of(const tokenizers::Config& config) {
  return {.bos = config.bos_token,
          .eos = config.eos_token,
          .unk = config.unk_token,
          .sep = config.sep_token,
          .pad = config.pad_token,
          .cls = config.cls_token,
          .mask = config.mask_token,
          .extra = config.extra_special_tokens};
}

}  // namespace

Tokenizer Tokenizer::from_file(const std::filesystem::path& file) {
  auto state = std::make_shared<State>();
  state->pipeline = tokenizers::read_pipeline(file);
  return Tokenizer(std::move(state));
}

Tokenizer Tokenizer::from_pretrained(const std::filesystem::path& folder_or_name) {
  const std::filesystem::path folder = model_folder(folder_or_name.string());
  if (!path_exists(folder)) {
    throw IoError("io.not-found", {.what = folder.string() + ": no such folder",
                                   .expected = "a model folder with tokenizer.json",
                                   .hint = "a built-in name has no tokenizer"});
  }
  const std::filesystem::path file = folder / "tokenizer.json";
  if (!std::filesystem::exists(file)) {
    throw IoError("tokenizers.no-tokenizer",
                  {.what = folder.string() + " has no tokenizer.json",
                   .hint = "download the model's tokenizer into the folder"});
  }
  auto state = std::make_shared<State>();
  state->pipeline = tokenizers::read_pipeline(file);
  const tokenizers::Config config = tokenizers::read_config(folder);
  state->special = special_tokens_of(config);
  TokenizerOptions& options = state->pipeline.options;
  if (config.truncation_side) options.truncation_side = *config.truncation_side;
  if (config.padding_side) options.padding_side = *config.padding_side;
  if (config.model_max_length) options.model_max_length = *config.model_max_length;
  return Tokenizer(std::move(state));
}

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return PipelineRowEncoder(*state_, options, false).encode(text);
}

Encoding Tokenizer::encode(std::string_view text, std::string_view pair,
                           const EncodeOptions& options) const {
  return PipelineRowEncoder(*state_, options, true).encode(text, pair);
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              const EncodeOptions& options, int threads) const {
  return tokenizers::encode_rows<PipelineRowEncoder>(*state_, texts, options, threads);
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              std::span<const std::string> pairs,
                                              const EncodeOptions& options, int threads) const {
  return tokenizers::encode_rows<PipelineRowEncoder>(*state_, texts, pairs, options, threads);
}

Encoding Tokenizer::encode_words(std::span<const std::string> words, EncodeOptions options) const {
  options.offsets = true;
  return PipelineRowEncoder(*state_, options, false).encode_words(words);
}

void Tokenizer::pad(std::span<Encoding> rows, PadOptions options) const {
  if (!options.side) options.side = state_->pipeline.options.padding_side;
  if (!options.pad_id) {
    options.pad_id = pad_id();
    if (!options.pad_id)
      throw UsageError("tokenizers.missing-token", {.what = "this tokenizer has no padding token",
                                                    .hint = "set PadOptions::pad_id"});
  }
  hasten::pad(rows, options);
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids,
                              const DecodeOptions& options) const {
  std::string text = tokenizers::decode_ids(state_->pipeline, ids, options.skip_special_tokens);
  if (options.clean_up_tokenization_spaces) tokenizers::clean_up_text(text);
  return text;
}

std::vector<std::string> Tokenizer::tokens(std::span<const std::int32_t> ids) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) tokens.emplace_back(id_to_token(id).value_or(""));
  return tokens;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const AddedToken* added = state_->pipeline.added.find_by_content(token)) return added->id;
  const std::int32_t id = state_->pipeline.model->vocabulary().find(token);
  return id == tokenizers::TokenTable::kNone ? std::nullopt : std::optional(id);
}

std::optional<std::string_view> Tokenizer::id_to_token(std::int32_t id) const {
  if (const AddedToken* added = state_->pipeline.added.find_by_id(id)) return added->content;
  return state_->pipeline.model->vocabulary().token(id);
}

std::int64_t Tokenizer::vocab_size() const noexcept {
  std::int64_t end = state_->pipeline.model->vocabulary().id_end();
  for (const AddedToken& token : state_->pipeline.added.tokens())
    end = std::max<std::int64_t>(end, token.id + std::int64_t{1});
  return end;
}

const SpecialTokens& Tokenizer::special_tokens() const noexcept { return state_->special; }

std::optional<std::int32_t> Tokenizer::id_of(const std::optional<std::string>& token) const {
  return token ? token_to_id(*token) : std::nullopt;
}
std::optional<std::int32_t> Tokenizer::bos_id() const { return id_of(state_->special.bos); }
std::optional<std::int32_t> Tokenizer::eos_id() const { return id_of(state_->special.eos); }
std::optional<std::int32_t> Tokenizer::pad_id() const {
  if (state_->special.pad) return token_to_id(*state_->special.pad);
  const auto& padding = state_->pipeline.stored.padding;
  return padding ? padding->pad_id : std::nullopt;
}
std::optional<std::int32_t> Tokenizer::mask_id() const { return id_of(state_->special.mask); }

std::vector<std::int32_t> Tokenizer::special_ids() const {
  const SpecialTokens& special = state_->special;
  std::set<std::int32_t> ids;
  for (const auto* token : {&special.bos, &special.eos, &special.unk, &special.sep, &special.pad,
                            &special.cls, &special.mask}) {
    if (const auto id = id_of(*token)) ids.insert(*id);
  }
  for (const std::string& token : special.extra) {
    if (const auto id = token_to_id(token)) ids.insert(*id);
  }
  return {ids.begin(), ids.end()};
}

std::int64_t Tokenizer::model_max_length() const noexcept {
  return state_->pipeline.options.model_max_length;
}
const StoredSettings& Tokenizer::stored_settings() const noexcept {
  return state_->pipeline.stored;
}

}  // namespace hasten
