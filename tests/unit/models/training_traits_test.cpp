// The training traits that a module reports, and the defaults for a module that reports none.
#include "hasten/models/training_traits.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/models/bert.h"

namespace models_training_traits_test {

using namespace hasten;

namespace {

struct Plain : torch::nn::Module {
  Plain() {
    register_module("layer", torch::nn::Linear(2, 2));
    register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
  }
};

struct WithTraits : Plain, TrainingTraits {
  std::int64_t max_length() const override { return 7; }
  std::optional<std::set<std::string>> undecayed_parameters() const override {
    return std::set<std::string>{"layer.weight"};
  }
};

}  // namespace

TEST_CASE("traits: only modules that derive from TrainingTraits are queried") {
  const Plain plain;
  const WithTraits with;
  CHECK(traits_of(plain) == nullptr);
  REQUIRE(traits_of(with) != nullptr);
  CHECK(traits_of(with)->max_length() == 7);
  CHECK(traits_of(with)->sparse_parameters().empty());
  CHECK(undecayed_parameters_of(plain) ==
        std::set<std::string>{"layer.bias", "norm.weight", "norm.bias"});
  CHECK(undecayed_parameters_of(with) == std::set<std::string>{"layer.weight"});
}

TEST_CASE("traits: BERT counts all input_ids, and the tokens without padding") {
  const BertModel model(BertConfig{.vocab_size = 10,
                                   .hidden_size = 4,
                                   .num_hidden_layers = 1,
                                   .num_attention_heads = 2,
                                   .intermediate_size = 8});
  const at::Tensor ids = at::zeros({2, 3}, at::kLong);
  CHECK(model.token_count({{"input_ids", ids}}) == 6);
  CHECK(model.real_token_count({{"input_ids", ids}}) == 6);
  const TensorDict masked = {{"input_ids", ids},
                             {"attention_mask", at::tensor({1, 1, 0, 1, 0, 0}).view({2, 3})}};
  CHECK(model.token_count(masked) == 6);
  CHECK(model.real_token_count(masked) == 3);
  CHECK(model.row_length(masked) == 3);
  CHECK(!model.token_count({{"pixels", ids}}).has_value());
  CHECK(model.row_length({{"pixels", ids}}) == 0);
}

}  // namespace models_training_traits_test
