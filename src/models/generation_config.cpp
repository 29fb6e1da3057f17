#include <filesystem>
#include <nlohmann/json.hpp>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "hasten/machine/model_folder.h"
#include "hasten/models/detail/gpt2_config.h"
#include "hasten/models/detail/llama_config.h"
#include "hasten/models/generation.h"
#include "models/config_reader.h"

namespace hasten {
namespace {

using Json = nlohmann::json;

[[noreturn]] void throw_key(const std::string& where, const char* key, const Json& value,
                            const char* expected, const char* hint) {
  throw DataError(
      "generation.config",
      {.what = where + ", key " + key, .got = value.dump(), .expected = expected, .hint = hint});
}

// Refuses keys that hasten does not support, unless their values do not affect the texts.
void check_supported_keys(const Json& object, const std::string& where) {
  static const std::vector<std::pair<const char*, Json>> neutral = {
      {"typical_p", 1.0},
      {"epsilon_cutoff", 0.0},
      {"eta_cutoff", 0.0},
      {"top_h", nullptr},
      {"bad_words_ids", nullptr},
      {"sequence_bias", nullptr},
      {"suppress_tokens", nullptr},
      {"begin_suppress_tokens", nullptr},
      {"forced_bos_token_id", nullptr},
      {"forced_eos_token_id", nullptr},
      {"exponential_decay_length_penalty", nullptr},
      {"encoder_repetition_penalty", 1.0},
      {"encoder_no_repeat_ngram_size", 0},
      {"guidance_scale", nullptr},
      {"penalty_alpha", nullptr},
      {"num_beam_groups", 1},
      {"diversity_penalty", 0.0},
      {"constraints", nullptr},
      {"force_words_ids", nullptr},
      {"dola_layers", nullptr},
      {"watermarking_config", nullptr},
      {"token_healing", false},
      {"remove_invalid_values", false},
      {"renormalize_logits", false},
      {"max_time", nullptr},
      {"stop_strings", nullptr}};
  for (const auto& [key, value] : neutral) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null() || *found == value) continue;
    throw_key(where, key, *found, "a key of a search that hasten has",
              "remove the key, which changes the texts");
  }
}

EarlyStopping early_stopping_of(const Json& value, const std::string& where) {
  if (value == "never") return EarlyStopping::never;
  if (value.is_boolean()) return value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
  throw_key(where, "early_stopping", value, "true, false or \"never\"", "");
}

void read_tokens(ConfigReader& reader, GenerationOptions& options) {
  reader.read_token_ids("eos_token_id", options.eos_token_id);
  reader.read("pad_token_id", options.pad_token_id);
  // Files of models without padding say -1.
  if (options.pad_token_id.value_or(0) < 0) options.pad_token_id.reset();
}

void read_generation(ConfigReader& reader, const std::string& where, GenerationOptions& options) {
  read_tokens(reader, options);
  reader.read("max_length", options.max_length);
  reader.read("max_new_tokens", options.max_new_tokens);
  reader.read("min_length", options.min_length);
  reader.read("min_new_tokens", options.min_new_tokens);
  reader.read("num_beams", options.num_beams);
  reader.read("length_penalty", options.length_penalty);
  const auto early_stopping = reader.object().find("early_stopping");
  if (early_stopping != reader.object().end() && !early_stopping->is_null())
    options.early_stopping = early_stopping_of(*early_stopping, where);
  reader.read("num_return_sequences", options.num_return_sequences);
  reader.read("do_sample", options.do_sample);
  reader.read("temperature", options.temperature);
  reader.read("top_k", options.top_k);
  reader.read("top_p", options.top_p);
  reader.read("min_p", options.min_p);
  reader.read("repetition_penalty", options.repetition_penalty);
  reader.read("no_repeat_ngram_size", options.no_repeat_ngram_size);
}

}  // namespace

GenerationOptions generation_defaults(const std::string& what) {
  GenerationOptions options;
  if (const auto gpt2 = GPT2Config::by_name(what)) {
    options.eos_token_id = gpt2->eos_token_ids;
    return options;
  }
  if (const auto llama = LlamaConfig::by_name(what)) {
    options.eos_token_id = llama->eos_token_ids;
    return options;
  }
  namespace fs = std::filesystem;
  const fs::path path = model_folder(what);
  const bool is_folder = fs::is_directory(path);
  const fs::path config = is_folder ? path / "config.json" : path;
  if (fs::exists(config)) {
    ConfigReader reader(read_file(config), config.string());
    read_tokens(reader, options);
  }
  const fs::path generation = path / "generation_config.json";
  if (is_folder && fs::exists(generation)) {
    ConfigReader reader(read_file(generation), generation.string());
    check_supported_keys(reader.object(), generation.string());
    read_generation(reader, generation.string(), options);
  }
  return options;
}

}  // namespace hasten
