// Compares generation with transformers' generate(): every token of the sequences, the scores of
// beams, and the processed scores of samplings (tests/oracle/generate_generation.py). The first
// case runs on tested::device(); scores are processed on the CPU everywhere.
#include "hasten/models/generation.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "device.h"
#include "hasten/base/files.h"
#include "hasten/formats/safetensors.h"
#include "hasten/models/pretrained_model.h"
#include "models/token_scores.h"

namespace oracle_generation_test {

using namespace hasten;
using nlohmann::json;

namespace {

const std::filesystem::path kData = tested::folder() / "oracle/data";

at::Tensor matrix_of(const json& rows) {
  const auto width = static_cast<std::int64_t>(rows.at(0).size());
  at::Tensor out = at::empty({static_cast<std::int64_t>(rows.size()), width}, at::kLong);
  std::int64_t* to = out.mutable_data_ptr<std::int64_t>();
  for (const json& row : rows) {
    for (const json& each : row) *to++ = each.get<std::int64_t>();
  }
  return out;
}

EarlyStopping early_stopping_of(const json& value) {
  if (value.is_string()) return EarlyStopping::never;
  return value.get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
}

GenerationOptions options_of(const json& given, std::uint64_t seed) {
  GenerationOptions options{.seed = seed};
  const std::map<std::string, std::function<void(const json&)>> readers = {
      {"max_length", [&](const json& v) { options.max_length = v.get<std::int64_t>(); }},
      {"max_new_tokens", [&](const json& v) { options.max_new_tokens = v.get<std::int64_t>(); }},
      {"min_length", [&](const json& v) { v.get_to(options.min_length); }},
      {"min_new_tokens", [&](const json& v) { v.get_to(options.min_new_tokens); }},
      {"num_beams", [&](const json& v) { v.get_to(options.num_beams); }},
      {"length_penalty", [&](const json& v) { v.get_to(options.length_penalty); }},
      {"early_stopping", [&](const json& v) { options.early_stopping = early_stopping_of(v); }},
      {"num_return_sequences", [&](const json& v) { v.get_to(options.num_return_sequences); }},
      {"do_sample", [&](const json& v) { v.get_to(options.do_sample); }},
      {"temperature", [&](const json& v) { v.get_to(options.temperature); }},
      {"top_k", [&](const json& v) { v.get_to(options.top_k); }},
      {"top_p", [&](const json& v) { v.get_to(options.top_p); }},
      {"min_p", [&](const json& v) { options.min_p = v.get<double>(); }},
      {"repetition_penalty", [&](const json& v) { v.get_to(options.repetition_penalty); }},
      {"no_repeat_ngram_size", [&](const json& v) { v.get_to(options.no_repeat_ngram_size); }},
      {"eos_token_id", [&](const json& v) { v.get_to(options.eos_token_id); }},
      {"pad_token_id", [&](const json& v) { options.pad_token_id = v.get<std::int64_t>(); }}};
  for (const auto& [name, value] : given.items()) readers.at(name)(value);
  return options;
}

struct Recorded {
  explicit Recorded(const std::string& model)
      : runs(json::parse(read_file(kData / "generation" / (model + ".json")))),
        tensors(load_safetensors(kData / "generation" / (model + ".safetensors"))),
        loaded(load_model((kData / "decoders" / model).string(), {.task = Task::causal_lm})) {
    loaded.model->to(tested::device());
    loaded.model->eval();
  }
  CausalModel& model() { return dynamic_cast<CausalModel&>(*loaded.model); }
  GenerationOutput generate(const json& run) {
    const json& prompts = runs.at("prompts").at(run.at("prompts").get<std::size_t>());
    const auto moved = [](const json& rows) { return matrix_of(rows).to(tested::device()); };
    return hasten::generate(model(), moved(prompts.at("ids")), moved(prompts.at("mask")),
                            options_of(run.at("options"), runs.at("seed").get<std::uint64_t>()));
  }

  json runs;
  TensorDict tensors;
  LoadedModel loaded;
};

}  // namespace

TEST_CASE("generation: sequences equal transformers' token for token") {
  for (const char* name : {"gpt2", "llama3"}) {
    CAPTURE(name);
    Recorded recorded(name);
    std::size_t beam_searches = 0;
    for (const json& run : recorded.runs.at("cases")) {
      CAPTURE(run.at("options").dump());
      CAPTURE(run.at("prompts").get<int>());
      const GenerationOutput out = recorded.generate(run);
      const at::Tensor expected = matrix_of(run.at("sequences"));
      REQUIRE(out.sequences.sizes() == expected.sizes());
      CHECK(at::equal(out.sequences, expected));
      REQUIRE(out.scores.defined() == run.contains("scores"));
      if (!out.scores.defined()) continue;
      ++beam_searches;
      for (std::size_t row = 0; row < run.at("scores").size(); ++row) {
        CHECK(out.scores[static_cast<std::int64_t>(row)].item<double>() ==
              doctest::Approx(run.at("scores")[row].get<double>()).epsilon(tested::limit(1e-5)));
      }
    }
    CHECK(beam_searches > 60);
  }
}

TEST_CASE("generation: the scores of a sampling equal those of transformers' processors") {
  for (const char* name : {"gpt2", "llama3"}) {
    CAPTURE(name);
    Recorded recorded(name);
    std::size_t compared = 0;
    for (const json& run : recorded.runs.at("cases")) {
      if (!run.contains("tensors")) continue;
      CAPTURE(run.at("options").dump());
      const auto key = run.at("tensors").get<std::string>();
      const json& prompts = recorded.runs.at("prompts").at(run.at("prompts").get<std::size_t>());
      const GenerationOptions options = options_of(run.at("options"), 0);
      const std::int64_t copies = options.num_return_sequences;
      const at::Tensor sequences = matrix_of(run.at("sequences")),
                       mask = matrix_of(prompts.at("mask")),
                       expected = recorded.tensors.at(key + ".scores");
      at::Tensor scores = recorded.tensors.at(key + ".logits").clone();
      const LogitsProcessor rules(options, mask.size(1));
      for (std::int64_t step = 0; step < scores.size(0); ++step) {
        for (std::int64_t row = 0; row < scores.size(1); ++row) {
          const at::Tensor own = scores[step][row];
          const std::int64_t padding = mask[row / copies].eq(0).sum().item<std::int64_t>();
          rules.apply({.tokens = {sequences[row].const_data_ptr<std::int64_t>(),
                                  static_cast<std::size_t>(mask.size(1) + step)},
                       .padding = padding},
                      {own.mutable_data_ptr<float>(), static_cast<std::size_t>(own.numel())});
        }
      }
      CHECK(at::equal(scores.isinf(), expected.isinf()));
      CHECK(at::allclose(scores, expected, 1e-6, 1e-6));
      ++compared;
    }
    CHECK(compared == 7);
  }
}

}  // namespace oracle_generation_test
