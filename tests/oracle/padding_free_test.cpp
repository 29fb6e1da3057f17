// Compares models that get packed rows with the same models that get padded rows: losses and
// gradients. On a GPU (tested::device()) LibTorch's operators for packed rows run, and on the CPU
// hasten's own. The test is in this folder because the kit for GPUs contains the program
// oracle_tests.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <vector>

#include "device.h"
#include "hasten/accelerator.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/pack_rows.h"
#include "hasten/ops/ops.h"

namespace oracle_padding_free_test {

using namespace hasten;

namespace {

constexpr std::int64_t kVocabulary = 50, kLength = 40;

// Returns a padded batch with rows of different lengths, or of one length. Its labels are classes
// of rows, or the ids of the tokens.
TensorDict batch_of(bool has_token_labels, bool is_ragged) {
  torch::manual_seed(5);
  const at::Tensor ids = at::randint(1, kVocabulary, {6, kLength}, at::kLong);
  at::Tensor mask = at::ones_like(ids);
  const std::vector<std::int64_t> lengths = {17, 40, 1, 33, 8, 25};
  for (std::size_t row = 0; is_ragged && row < lengths.size(); ++row)
    mask[static_cast<std::int64_t>(row)].slice(0, lengths[row]).zero_();
  const at::Tensor labels =
      has_token_labels ? ids.masked_fill(mask.eq(0), -100) : at::arange(6, at::kLong).remainder(3);
  return {{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}};
}

struct Pass {
  double loss = 0;
  TensorDict gradients;
};

Pass pass_of(PreTrainedModel& model, const Accelerator& accelerator, const TensorDict& batch) {
  model.zero_grad();
  at::Tensor loss;
  {
    const auto autocast = accelerator.autocast();
    loss = model.forward(accelerator.to_device(batch)).loss;
  }
  loss.backward();
  Pass pass{.loss = loss.item<double>(), .gradients = {}};
  for (const auto& item : model.named_parameters()) {
    if (item.value().grad().defined())
      pass.gradients[item.key()] = item.value().grad().detach().cpu().to(at::kDouble);
  }
  return pass;
}

// Compares the gradients relative to the largest number of each. Some are zero up to rounding.
void check_model(PreTrainedModel& model, bool has_token_labels, Precision precision) {
  torch::manual_seed(6);
  model.initialize();
  const Accelerator accelerator({.mixed_precision = precision, .cpu = tested::device().is_cpu()});
  accelerator.to_device(model);
  model.train();
  const double limit = precision == Precision::bf16 ? 0.05 : tested::limit(2e-5);
  for (const bool is_ragged : {true, false}) {
    CAPTURE(is_ragged);
    const TensorDict batch = batch_of(has_token_labels, is_ragged),
                     packed = pack_rows(batch, model.shifts_labels());
    REQUIRE(packed.contains(kPackedRows));
    const Pass expected = pass_of(model, accelerator, batch),
               got = pass_of(model, accelerator, packed);
    CHECK(got.loss == doctest::Approx(expected.loss).epsilon(limit));
    REQUIRE(got.gradients.size() == expected.gradients.size());
    for (const auto& [name, gradient] : expected.gradients) {
      CAPTURE(name);
      const double largest = gradient.abs().max().item<double>();
      CHECK((got.gradients.at(name) - gradient).abs().max().item<double>() <=
            limit * (largest + 0.1));
    }
  }
}

BertConfig bert_config() {
  return {.vocab_size = kVocabulary,
          .hidden_size = 64,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 64,
          .hidden_dropout_prob = 0,
          .attention_probs_dropout_prob = 0,
          .max_position_embeddings = kLength,
          .num_labels = 3};
}

void check_models(Precision precision) {
  const BertConfig bert = bert_config();
  BertForSequenceClassification classifier(bert);
  check_model(classifier, false, precision);
  BertForMaskedLM filler(bert);
  check_model(filler, true, precision);
  GPT2LMHeadModel gpt2(GPT2Config{.vocab_size = kVocabulary,
                                  .n_positions = kLength,
                                  .n_embd = 64,
                                  .n_layer = 2,
                                  .n_head = 2,
                                  .resid_pdrop = 0,
                                  .embd_pdrop = 0,
                                  .attn_pdrop = 0});
  check_model(gpt2, true, precision);
  LlamaForCausalLM llama(LlamaConfig{.vocab_size = kVocabulary,
                                     .hidden_size = 64,
                                     .intermediate_size = 96,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 4,
                                     .num_key_value_heads = 2,
                                     .max_position_embeddings = kLength});
  check_model(llama, true, precision);
}

}  // namespace

TEST_CASE("padding free: models have the losses and gradients of padded batches, in float") {
  check_models(Precision::no);
}

TEST_CASE("padding free: models have the losses and gradients of padded batches, in bfloat16") {
  check_models(Precision::bf16);
}

TEST_CASE("padding free: an evaluation of texts has the logits of padded batches") {
  const torch::NoGradGuard no_grad;
  for (const Precision precision : {Precision::no, Precision::bf16}) {
    const bool is_float = precision == Precision::no;
    CAPTURE(is_float);
    const Accelerator accelerator({.mixed_precision = precision, .cpu = tested::device().is_cpu()});
    BertForSequenceClassification model(bert_config());
    torch::manual_seed(6);
    model.initialize();
    accelerator.to_device(model);
    model.eval();
    const auto logits = [&](const TensorDict& batch) {
      const auto autocast = accelerator.autocast();
      return model.forward(accelerator.to_device(batch)).logits.cpu().to(at::kFloat);
    };
    const TensorDict batch = batch_of(false, true);
    const at::Tensor expected = logits(batch), got = logits(pack_rows(batch, false));
    CHECK(got.sizes() == expected.sizes());
    CHECK((got - expected).abs().max().item<double>() <= (is_float ? tested::limit(2e-5) : 0.05));
  }
}

// LibTorch's operators for packed rows do not take the first two. For rows of one token with shared
// heads FlashAttention uses another layout.
TEST_CASE("padding free: attention of packed rows takes every dropout and every length") {
  const ops::AttentionHeads heads(4, 2);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const bool is_float = type == at::kFloat;
    CAPTURE(is_float);
    const auto leaf = [&](std::int64_t columns) {
      return at::randn({1, 8, columns}).to(tested::device(), type).requires_grad_();
    };
    torch::manual_seed(7);
    const at::Tensor q = leaf(4 * 16), k = leaf(2 * 16), v = leaf(2 * 16);
    const auto attend = [&](const std::vector<std::int64_t>& lengths, double p) {
      return ops::attention(q, k, v, ops::KeyMask::packed(lengths), heads, p, /*training=*/true);
    };
    const auto gradients = [&](const at::Tensor& y) {
      return torch::autograd::grad({y.sum()}, {q, k, v});
    };
    const at::Tensor dropped = attend({3, 5}, 1);
    CHECK(dropped.count_nonzero().item<std::int64_t>() == 0);
    for (const at::Tensor& each : gradients(dropped))
      CHECK(each.count_nonzero().item<std::int64_t>() == 0);
    const double limit = is_float ? tested::limit(1e-5) : 0.02;
    const auto distance = [](const at::Tensor& a, const at::Tensor& b) {
      return (a - b).to(at::kFloat).abs().max().item<double>();
    };
    CHECK(distance(attend({3, 0, 5}, 0), attend({3, 5}, 0)) <= limit);
    // A token that attends only to itself has the value of its head.
    const at::Tensor single = attend({1, 1, 1, 1, 1, 1, 1, 1}, 0);
    CHECK(distance(single.view({8, 2, 2, 16}), v.view({8, 2, 1, 16})) <= limit);
    const auto of_single = gradients(single);
    CHECK(of_single[0].abs().max().item<double>() <= limit);
    CHECK(distance(of_single[2], at::full_like(v, 2)) <= limit);  // two heads share each value
  }
}

}  // namespace oracle_padding_free_test
