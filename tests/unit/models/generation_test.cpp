// Generation, its cache of keys and values, and its options. tests/oracle/generation_test.cpp
// compares the sequences with transformers.
#include "hasten/models/generation.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <limits>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "models/token_scores.h"
#include "unit/code_of.h"

namespace models_generation_test {

using namespace hasten;

namespace {

// Predicts the next token from the last one only, and caches no keys. Token t is followed by t + 1,
// and t + 2 is the second choice.
struct Counter : torch::nn::Module, CausalModel {
  explicit Counter(std::int64_t vocabulary) : vocabulary(vocabulary) {}
  CacheShape cache_shape() const override { return {}; }
  std::int64_t max_length() const override { return limit; }
  at::Tensor next_logits(const at::Tensor& ids, KeyValueCache& cache) override {
    CHECK(ids.size(0) == cache.rows());
    read_tokens += ids.numel();
    const at::Tensor last = ids.select(1, ids.size(1) - 1);
    at::Tensor logits = at::zeros({ids.size(0), vocabulary});
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      logits[row][(last[row].item<std::int64_t>() + 1) % vocabulary] = 3;
      logits[row][(last[row].item<std::int64_t>() + 2) % vocabulary] = 2;
    }
    return logits;
  }
  std::int64_t vocabulary, limit = 0, read_tokens = 0;
};

// Returns Counter's logits with other strides.
struct TransposedCounter : Counter {
  using Counter::Counter;
  at::Tensor next_logits(const at::Tensor& ids, KeyValueCache& cache) override {
    return Counter::next_logits(ids, cache).t().contiguous().t();
  }
};

// Gives the same logits after every token.
struct Constant : torch::nn::Module, CausalModel {
  explicit Constant(std::vector<float> logits) : logits(at::tensor(logits)) {}
  CacheShape cache_shape() const override { return {}; }
  std::int64_t max_length() const override { return 0; }
  at::Tensor next_logits(const at::Tensor& ids, KeyValueCache&) override {
    return logits.expand({ids.size(0), -1});
  }
  at::Tensor logits;
};

// Returns the tokens that sampling may draw if these are the last logits.
std::vector<std::int64_t> allowed_tokens(std::vector<float> logits, GenerationOptions options) {
  options.do_sample = true;
  const std::vector<std::int64_t> text = {0};
  LogitsProcessor(options, 1).apply({.tokens = text}, logits);
  std::vector<std::int64_t> allowed;
  for (std::size_t token = 0; token < logits.size(); ++token) {
    if (logits[token] != kForbidden) allowed.push_back(static_cast<std::int64_t>(token));
  }
  return allowed;
}

std::shared_ptr<GPT2LMHeadModel> tiny_gpt2() {
  torch::manual_seed(4);
  auto model = std::make_shared<GPT2LMHeadModel>(GPT2Config{.vocab_size = 37,
                                                            .n_positions = 64,
                                                            .n_embd = 16,
                                                            .n_layer = 2,
                                                            .n_head = 2,
                                                            .initializer_range = 0.5});
  model->initialize();
  model->eval();
  return model;
}

at::Tensor row(std::vector<std::int64_t> numbers) {
  return at::tensor(numbers, at::kLong).unsqueeze(0);
}

std::string option_error(const GenerationOptions& options) {
  return code_of([&] { check_generation(options); });
}

}  // namespace

TEST_CASE("generation: a user's model generates, and each token is read once") {
  Counter model(10);
  const GenerationOutput out = generate(model, row({2, 3}), {}, {.max_new_tokens = 5});
  CHECK(at::equal(out.sequences, row({2, 3, 4, 5, 6, 7, 8})));
  CHECK_FALSE(out.scores.defined());
  CHECK(model.read_tokens == 2 + 4);
}

TEST_CASE("generation: the strides of the logits do not change the texts") {
  Counter plain(12);
  TransposedCounter transposed(12);
  const at::Tensor ids = at::tensor({1, 2, 3, 7, 5, 9}, at::kLong).view({2, 3});
  const GenerationOptions options{.max_new_tokens = 2, .no_repeat_ngram_size = 1};
  const at::Tensor expected = at::tensor({1, 2, 3, 4, 5, 7, 5, 9, 10, 11}, at::kLong).view({2, 5});
  CHECK(at::equal(generate(plain, ids, {}, options).sequences, expected));
  CHECK(at::equal(generate(transposed, ids, {}, options).sequences, expected));
}

TEST_CASE("generation: each row stops at its end token and is padded after it") {
  Counter model(20);
  const at::Tensor prompts = at::tensor({4, 9, 1, 2}, at::kLong).view({2, 2});
  std::vector<std::vector<std::int64_t>> steps;
  const GenerationOutput out = generate(
      model, prompts, {},
      {.max_new_tokens = 6,
       .eos_token_id = {11, 5},
       .pad_token_id = 0,
       .on_tokens = [&](const std::vector<std::int64_t>& next) { steps.push_back(next); }});
  CHECK(at::equal(out.sequences,
                  at::tensor({4, 9, 10, 11, 0, 1, 2, 3, 4, 5}, at::kLong).view({2, 5})));
  CHECK((steps == std::vector<std::vector<std::int64_t>>{{10, 3}, {11, 4}, {0, 5}}));
}

TEST_CASE("generation: the default length is 20 new tokens") {
  Counter model(1000);
  CHECK(generate(model, row({1, 2, 3}), {}, {}).sequences.size(1) == 23);
  CHECK(generate(model, row({1, 2, 3}), {}, {.max_length = 7}).sequences.size(1) == 7);
}

TEST_CASE("generation: the default length is limited by the model's maximum") {
  Counter model(1000);
  model.limit = 10;
  CHECK(generate(model, row({1, 2, 3}), {}, {}).sequences.size(1) == 10);
  for (const std::vector<std::int64_t>& prompt :
       {std::vector<std::int64_t>(10, 1), std::vector<std::int64_t>(11, 1)}) {
    CHECK(code_of([&] { generate(model, row(prompt), {}, {}); }) == "models.sequence-too-long");
  }
}

TEST_CASE("generation: min_new_tokens takes precedence over min_length") {
  Counter model(20);
  const auto text = [&](GenerationOptions options) {
    options.max_new_tokens = 12;
    options.eos_token_id = {5};
    return generate(model, row({1, 2}), {}, options).sequences;
  };
  const at::Tensor ended = row({1, 2, 3, 4, 5}), on = text({.min_length = 10});
  CHECK(on.size(1) == 14);
  CHECK(at::equal(text({.min_length = 10, .min_new_tokens = 1}), ended));
  CHECK(at::equal(text({.min_length = 2, .min_new_tokens = 8}), on));
}

TEST_CASE("generation: top_k, top_p and min_p keep the same tokens as transformers at ties") {
  using Tokens = std::vector<std::int64_t>;
  const std::vector<float> equal(10, 0.0F);
  // Each probability is the float 0.1, which is also the float of 1 - 0.9.
  CHECK(allowed_tokens(equal, {.top_p = 0.9}) == Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9});
  CHECK(allowed_tokens({1, 1, 1, 1}, {.top_p = 0.5}) == Tokens{2, 3});
  CHECK(allowed_tokens({1, 2, 1, 2}, {.top_p = 0}) == Tokens{3});
  CHECK(allowed_tokens({1, 2, 1, 2}, {.top_p = 1}).size() == 4);
  CHECK(allowed_tokens({1, 2, 1, 2}, {.min_p = 1.0}) == Tokens{1, 3});
  CHECK(allowed_tokens({1, 2, 1, 2}, {.min_p = 0.0}).size() == 4);
  CHECK(allowed_tokens({1, 2, 2, 3}, {.top_k = 2}) == Tokens{1, 2, 3});
  CHECK(allowed_tokens({1, 2, 2, 3}, {.top_k = 0}).size() == 4);
  CHECK(allowed_tokens({1, 2, 2, 3}, {.top_k = 100}).size() == 4);
  // The probabilities of the next filter leave out the tokens that an earlier one has forbidden.
  CHECK(allowed_tokens({3, 3, 0, 3, 3}, {.top_k = 4, .top_p = 0.75}) == Tokens{1, 3, 4});
}

TEST_CASE("generation: ties keep the first beam and the smallest tokens") {
  Constant model({0, 0, 0, 0, 0, 0, 1, 0});
  const GenerationOutput out = generate(
      model, row({1}), {}, {.max_new_tokens = 1, .num_beams = 3, .num_return_sequences = 3});
  CHECK(at::equal(out.sequences, at::tensor({1, 6, 1, 0, 1, 1}, at::kLong).view({3, 2})));
}

TEST_CASE("generation: a padding id outside the vocabulary is refused") {
  Counter model(20);
  const at::Tensor prompts = at::tensor({4, 9, 1, 2}, at::kLong).view({2, 2});
  for (const std::int64_t beams : {1, 2}) {
    CAPTURE(beams);
    for (const std::int64_t padding : {-1, 20}) {
      CAPTURE(padding);
      std::int64_t steps = 0;
      GenerationOptions options{.num_beams = beams, .eos_token_id = {11}, .pad_token_id = padding};
      if (beams == 1) options.on_tokens = [&](const std::vector<std::int64_t>&) { ++steps; };
      CHECK(code_of([&] { generate(model, prompts, {}, options); }) == "generation.option");
      CHECK(steps == 0);
    }
  }
}

TEST_CASE("generation: a model's files set options, and invalid values are refused") {
  const TemporaryDirectory folder("hasten-generation");
  const auto defaults = [&](const std::string& config, const std::string& generation) {
    write_file_atomically(folder.path() / "config.json", config);
    write_file_atomically(folder.path() / "generation_config.json", generation);
    return generation_defaults(folder.path().string());
  };
  const GenerationOptions null_keys =
      defaults(R"({"eos_token_id": 2, "pad_token_id": -1})",
               R"({"temperature": null, "top_k": null, "max_length": null, "early_stopping": null,
          "bad_words_ids": null, "transformers_version": "5.23.0", "bos_token_id": 1})");
  CHECK(null_keys.eos_token_id == std::vector<std::int64_t>{2});
  CHECK_FALSE(null_keys.pad_token_id.has_value());  // -1 in a file means no padding token
  CHECK(null_keys.temperature == 1);
  CHECK(null_keys.top_k == 50);
  CHECK_FALSE(null_keys.max_length.has_value());
  CHECK((null_keys.early_stopping == EarlyStopping::no));
  const GenerationOptions keys = defaults(
      R"({"eos_token_id": 2, "pad_token_id": 3})",
      R"({"eos_token_id": [4, 5], "early_stopping": "never", "num_beams": 4, "min_p": 0.1})");
  CHECK(keys.eos_token_id == std::vector<std::int64_t>{4, 5});
  CHECK(keys.pad_token_id == 3);
  CHECK((keys.early_stopping == EarlyStopping::never));
  CHECK(keys.num_beams == 4);
  CHECK(keys.min_p == 0.1);
  for (const char* const refused :
       {R"({"early_stopping": "always"})", R"({"watermarking_config": {"bias": 2.5}})",
        R"({"typical_p": 0.5})", R"({"remove_invalid_values": true})", R"({"max_time": 3.0})"}) {
    CAPTURE(refused);
    CHECK(code_of([&] { defaults("{}", refused); }) == "generation.config");
  }
}

TEST_CASE("generation: a seed repeats its samples, and another one draws others") {
  const auto model = tiny_gpt2();
  const auto sample = [&](std::uint64_t seed) {
    return generate(
               *model, row({5, 6}), {},
               {.max_new_tokens = 20, .num_return_sequences = 3, .do_sample = true, .seed = seed})
        .sequences;
  };
  CHECK(at::equal(sample(1), sample(1)));
  CHECK_FALSE(at::equal(sample(1), sample(2)));
  CHECK(sample(1).size(0) == 3);
  CHECK_FALSE(at::equal(sample(1)[0], sample(1)[1]));
}

TEST_CASE("generation: one beam equals greedy search, and more beams score better") {
  const auto model = tiny_gpt2();
  const at::Tensor prompts = at::randint(0, 37, {3, 4});
  const auto best = [&](std::int64_t beams) {
    return generate(*model, prompts, {}, {.max_new_tokens = 12, .num_beams = beams});
  };
  const GenerationOutput narrow = best(2), wide = best(12);
  CHECK(wide.scores.mean().item<double>() >= narrow.scores.mean().item<double>());
  // The score of a sequence is the mean of the log probabilities of its new tokens.
  const at::Tensor sequences = wide.sequences;
  const at::Tensor log_p =
      at::log_softmax(model->forward({{"input_ids", sequences}}).logits.narrow(1, 3, 12), -1);
  const at::Tensor sums =
      log_p.gather(2, sequences.narrow(1, 4, 12).unsqueeze(-1)).squeeze(-1).sum(1);
  CHECK(at::allclose(sums / 12, wide.scores, 1e-4, 1e-4));
}

TEST_CASE("generation: padding at the left does not change a text") {
  const auto model = tiny_gpt2();
  const at::Tensor prompts = at::tensor({0, 0, 7, 8, 3, 4, 5, 6}, at::kLong).view({2, 4}),
                   mask = at::tensor({0, 0, 1, 1, 1, 1, 1, 1}, at::kLong).view({2, 4});
  for (const std::int64_t beams : {1, 3}) {
    const GenerationOptions options{.max_new_tokens = 10, .num_beams = beams};
    const at::Tensor together = generate(*model, prompts, mask, options).sequences;
    CHECK(at::equal(together[0].narrow(0, 2, 12),
                    generate(*model, row({7, 8}), {}, options).sequences[0]));
    CHECK(at::equal(together[1], generate(*model, row({3, 4, 5, 6}), {}, options).sequences[0]));
  }
}

TEST_CASE("generation: models of other types have caches of their type") {
  const at::Tensor prompts = at::tensor({0, 0, 7, 8, 3, 4, 5, 6}, at::kLong).view({2, 4}),
                   mask = at::tensor({0, 0, 1, 1, 1, 1, 1, 1}, at::kLong).view({2, 4});
  const auto check = [&](const std::shared_ptr<PreTrainedModel>& model) {
    auto& causal = dynamic_cast<CausalModel&>(*model);
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      CAPTURE(c10::toString(type));
      model->to(type);
      for (const std::int64_t beams : {1, 3}) {
        std::vector<at::Tensor> memory;
        const GenerationOutput out =
            generate(causal, prompts, mask,
                     {.max_new_tokens = 6,
                      .num_beams = beams,
                      .on_memory = [&](const std::vector<at::Tensor>& all) { memory = all; }});
        const auto caches = std::count_if(
            memory.begin(), memory.end(),
            [&](const at::Tensor& each) { return each.dim() == 3 && each.scalar_type() == type; });
        CHECK(caches == 4);
        CHECK(out.sequences.size(1) == 10);
      }
    }
  };
  check(tiny_gpt2());
  const auto llama = std::make_shared<LlamaForCausalLM>(LlamaConfig{.vocab_size = 37,
                                                                    .hidden_size = 16,
                                                                    .intermediate_size = 24,
                                                                    .num_hidden_layers = 2,
                                                                    .num_attention_heads = 4,
                                                                    .num_key_value_heads = 2,
                                                                    .max_position_embeddings = 32});
  llama->initialize();
  llama->eval();
  check(llama);
}

TEST_CASE("generation: options that are out of range or exclude each other are refused") {
  const std::vector<GenerationOptions> refused = {
      {.max_length = std::numeric_limits<std::int64_t>::max()},
      {.max_new_tokens = std::numeric_limits<std::int64_t>::max()},
      {.max_new_tokens = 0},
      {.max_new_tokens = 3, .min_new_tokens = 4},
      {.num_beams = 0},
      {.num_beams = 2, .num_return_sequences = 3},
      {.num_beams = 2, .do_sample = true},
      {.num_beams = 2, .on_tokens = [](const std::vector<std::int64_t>&) {}},
      {.num_return_sequences = 2},
      {.temperature = 0},
      {.top_k = -1},
      {.top_p = 1.5},
      {.min_p = -0.1},
      {.repetition_penalty = 0},
      {.no_repeat_ngram_size = -1}};
  for (const GenerationOptions& each : refused) CHECK(option_error(each) == "generation.option");
  CHECK(option_error({}) == "none");
}

TEST_CASE("generation: prompts that do not fit are refused") {
  Counter model(10);
  const auto error = [&](const at::Tensor& ids, const at::Tensor& mask,
                         const GenerationOptions& options = {}) {
    return code_of([&] { generate(model, ids, mask, options); });
  };
  CHECK(error({}, {}) == "generation.prompt");
  CHECK(error(at::zeros({2}, at::kLong), {}) == "generation.prompt");
  CHECK(error(at::zeros({2, 0}, at::kLong), {}) == "generation.prompt");
  CHECK(error(at::zeros({1, 2}), {}) == "generation.prompt");
  CHECK(error(row({1, 2}), at::ones({1, 3})) == "generation.prompt");
  CHECK(error(row({1, 2}), row({1, 0})) == "generation.prompt");  // padding on the right
  CHECK(error(row({1, 2}), {}, {.max_length = 2}) == "generation.option");
  model.limit = 5;
  CHECK(error(row({1, 2}), {}, {.max_new_tokens = 4}) == "models.sequence-too-long");
  CHECK(error(row({1, 2}), {}, {.max_new_tokens = 3}) == "none");
}

TEST_CASE("cache: memory is allocated once, and only the differing tokens of rows are copied") {
  KeyValueCache cache({.layers = 1, .width = 2}, {.rows = 2, .capacity = 6, .copies = 3});
  const at::Tensor prompt = at::randn({2, 3, 2});
  cache.append(0, prompt, -prompt);
  cache.advance(3);
  const void* const memory = cache.tensors()[0].data_ptr();
  cache.expand();
  CHECK(cache.rows() == 6);
  const at::Tensor keys = cache.tensors()[0];
  for (std::int64_t copy = 0; copy < 3; ++copy) {
    CHECK(at::equal(keys[copy].narrow(0, 0, 3), prompt[0]));
    CHECK(at::equal(keys[3 + copy].narrow(0, 0, 3), prompt[1]));
  }
  const at::Tensor next = at::randn({6, 1, 2});
  const auto [all, values] = cache.append(0, next, next);
  CHECK(all.size(1) == 4);
  CHECK(at::equal(all.select(1, 3), next.select(1, 0)));
  CHECK(at::equal(values[1].narrow(0, 0, 3), -prompt[0]));
  cache.advance(1);
  // A mark in the common beginning shows that it is not copied.
  keys[0].select(0, 1).fill_(9);
  cache.copy_row(0, 2);
  CHECK(at::equal(keys[2][3], next[0][0]));
  CHECK(at::equal(keys[2][1], prompt[0][1]));
  CHECK(cache.tensors()[0].data_ptr() == memory);
  CHECK(code_of([&] { cache.copy_row(0, 4); }) == "models.cache");  // a row of another prompt
  CHECK(code_of([&] {
          cache.append(0, at::zeros({6, 3, 2}), at::zeros({6, 3, 2}));
        }) == "models.cache");
  CHECK(code_of([&] {
          cache.append(0, at::zeros({2, 1, 2}), at::zeros({2, 1, 2}));
        }) == "models.cache");
}

TEST_CASE("cache: invalid arguments are refused, and a second prompt replaces the first") {
  const auto error = [](const auto& call) { return code_of(call); };
  KeyValueCache cache({.layers = 1, .width = 2}, {.rows = 2, .capacity = 4});
  const at::Tensor padded = at::tensor({0, 1, 1, 1}, at::kLong).view({2, 2});
  cache.set_prompt(padded);
  CHECK(error([&] { (void)cache.mask(5); }) == "models.cache");
  CHECK(error([&] { (void)cache.positions(5); }) == "models.cache");
  CHECK(error([&] { cache.advance(5); }) == "models.cache");
  CHECK(error([&] { cache.advance(-1); }) == "models.cache");
  CHECK(error([&] { cache.set_prompt(at::ones({3, 2})); }) == "models.cache");
  CHECK(error([&] { cache.set_prompt(at::ones({2, 5})); }) == "models.cache");
  CHECK(error([&] { cache.set_prompt(at::ones({2})); }) == "models.cache");
  CHECK(at::equal(cache.positions(2), at::tensor({0, 0, 0, 1}, at::kLong).view({2, 2})));
  cache.set_prompt(padded.flip(0));
  CHECK(at::equal(cache.positions(2), at::tensor({0, 1, 0, 0}, at::kLong).view({2, 2})));
  cache.set_prompt({});
  CHECK(at::equal(cache.positions(2), row({0, 1})));
  CHECK_FALSE(cache.mask(2).additive().defined());
  cache.advance(2);
  CHECK(error([&] { cache.set_prompt(padded); }) == "models.cache");
}

TEST_CASE("cache: positions count the tokens that are not padding") {
  KeyValueCache cache({}, {.rows = 2, .capacity = 8, .copies = 2});
  cache.set_prompt(at::tensor({0, 0, 1, 1, 1, 1}, at::kLong).view({2, 3}));
  CHECK(at::equal(cache.positions(3), at::tensor({0, 0, 0, 0, 1, 2}, at::kLong).view({2, 3})));
  cache.advance(3);
  cache.expand();
  CHECK(
      at::equal(cache.positions(2), at::tensor({1, 2, 1, 2, 3, 4, 3, 4}, at::kLong).view({4, 2})));
  CHECK(cache.mask(1).additive().size(0) == 4);
  CHECK(cache.mask(1).additive().size(1) == 4);
  KeyValueCache plain({}, {.rows = 2, .capacity = 8});
  plain.set_prompt(at::ones({2, 3}));
  CHECK(at::equal(plain.positions(2), row({0, 1})));
  CHECK_FALSE(plain.mask(1).additive().defined());
}

}  // namespace models_generation_test
