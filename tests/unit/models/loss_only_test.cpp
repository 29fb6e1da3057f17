// Losses without logits and without padding, and batches that a collator has packed.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/data/task_collators.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "unit/code_of.h"

namespace models_loss_only_test {

using namespace hasten;

namespace {

constexpr std::int64_t kClasses = 5, kLongest = 12;

BertConfig config_of(bool tied) {
  return {.vocab_size = 40,
          .hidden_size = 16,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 32,
          .hidden_dropout_prob = 0,
          .attention_probs_dropout_prob = 0,
          .max_position_embeddings = 32,
          .num_labels = kClasses,
          .tie_word_embeddings = tied};
}

// Returns texts of 3 to 12 tokens. The first token and some other tokens have no label.
std::vector<TensorDict> ragged_rows(std::int64_t classes) {
  torch::manual_seed(2);
  std::vector<TensorDict> rows;
  for (const std::int64_t length : {7, 3, 12, 5}) {
    at::Tensor labels = at::randint(classes, {length}, at::kLong);
    labels.masked_fill_(at::rand({length}).lt(0.5), -100);
    labels[0] = -100;
    rows.push_back({{"input_ids", at::randint(1, 40, {length}, at::kLong)}, {"labels", labels}});
  }
  return rows;
}

TensorDict padded(const std::vector<TensorDict>& rows) {
  const auto pad = [&](const at::Tensor& x, std::int64_t value) {
    return at::constant_pad_nd(x, {0, kLongest - x.size(0)}, value);
  };
  std::vector<at::Tensor> ids, masks, labels;
  for (const TensorDict& row : rows) {
    ids.push_back(pad(row.at("input_ids"), 0));
    masks.push_back(pad(at::ones_like(row.at("input_ids")), 0));
    labels.push_back(pad(row.at("labels"), -100));
  }
  return {{"input_ids", at::stack(ids)},
          {"attention_mask", at::stack(masks)},
          {"labels", at::stack(labels)}};
}

TensorDict flat(const std::vector<TensorDict>& rows) {
  return DataCollatorWithFlattening{.return_flash_attn_kwargs = true}(rows);
}

struct Step {
  ModelOutput out;
  TensorDict gradients;
};

Step step(PreTrainedModel& model, const TensorDict& batch, bool loss_only) {
  CHECK(model.set_loss_only(loss_only));
  model.zero_grad();
  Step result{.out = model.forward(batch)};
  result.out.loss.backward();
  for (const auto& item : model.named_parameters())
    if (item.value().grad().defined()) result.gradients[item.key()] = item.value().grad().clone();
  return result;
}

void check_equal(const Step& a, const Step& b) {
  CHECK(std::abs(a.out.loss.item<double>() - b.out.loss.item<double>()) < 1e-5);
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    CAPTURE(name);
    CHECK((gradient - b.gradients.at(name)).abs().max().item<double>() < 1e-5);
  }
}

void check_model(PreTrainedModel& model, std::int64_t classes) {
  torch::manual_seed(3);
  model.initialize();
  model.train();
  const std::vector<TensorDict> rows = ragged_rows(classes);
  const Step whole = step(model, padded(rows), false);
  CHECK(whole.out.logits.defined());
  const Step loss_only = step(model, padded(rows), true);
  CHECK_FALSE(loss_only.out.logits.defined());
  check_equal(loss_only, whole);
  CHECK(model.supports_packed_batches());
  check_equal(step(model, flat(rows), true), whole);
  const Step packed = step(model, flat(rows), false);
  check_equal(packed, whole);
  CHECK(packed.out.logits.size(1) == 7 + 3 + 12 + 5);

  // A label of a masked token counts with and without loss_only.
  TensorDict labelled_padding = padded(rows);
  labelled_padding["labels"][1][10] = 1;
  check_equal(step(model, labelled_padding, true), step(model, labelled_padding, false));
  // A masked token between others also predicts the next token.
  TensorDict hole = padded(rows);
  hole["attention_mask"][2][4].zero_();
  hole["labels"][2][4] = -100;
  hole["labels"][2][5] = 1;
  check_equal(step(model, hole, true), step(model, hole, false));
  // The results also agree without a mask. Without any label, the loss is NaN.
  TensorDict without_mask = padded(rows);
  without_mask.erase("attention_mask");
  check_equal(step(model, without_mask, true), step(model, without_mask, false));
  without_mask["labels"] = at::full_like(without_mask["labels"], -100);
  CHECK(std::isnan(step(model, without_mask, true).out.loss.item<double>()));

  // First there is one label for each text, and then there are too few labels for the tokens.
  for (const bool loss_only : {false, true}) {
    CAPTURE(loss_only);
    CHECK(model.set_loss_only(loss_only));
    TensorDict wrong = padded(rows);
    for (const at::Tensor& labels :
         {at::zeros({4}, at::kLong), at::zeros({4, kLongest - 1}, at::kLong)}) {
      wrong["labels"] = labels;
      CHECK(code_of([&] { model.forward(wrong); }) == "data.labels");
    }
  }

  CHECK(model.set_loss_only(true));
  TensorDict unlabelled = padded(rows);
  unlabelled.erase("labels");
  CHECK(model.forward(unlabelled).logits.defined());
  model.eval();
  CHECK(model.forward(padded(rows)).logits.defined());
}

}  // namespace

TEST_CASE("loss only: token classification computes the same loss and gradients") {
  BertForTokenClassification model(config_of(true));
  check_model(model, kClasses);
}

TEST_CASE("loss only: masked language modelling computes the same loss and gradients") {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    BertForMaskedLM model(config_of(tied));
    check_model(model, 40);
  }
}

TEST_CASE("loss only: causal language modelling computes the same loss and gradients") {
  for (const bool tied : {true, false}) {
    CAPTURE(tied);
    GPT2LMHeadModel gpt2(GPT2Config{.vocab_size = 40,
                                    .n_positions = 32,
                                    .n_embd = 16,
                                    .n_layer = 2,
                                    .n_head = 2,
                                    .resid_pdrop = 0,
                                    .embd_pdrop = 0,
                                    .attn_pdrop = 0,
                                    .tie_word_embeddings = tied});
    check_model(gpt2, 40);
    LlamaForCausalLM llama(LlamaConfig{.vocab_size = 40,
                                       .hidden_size = 16,
                                       .intermediate_size = 32,
                                       .num_hidden_layers = 2,
                                       .num_attention_heads = 4,
                                       .num_key_value_heads = 2,
                                       .max_position_embeddings = 32,
                                       .tie_word_embeddings = tied});
    check_model(llama, 40);
  }
}

TEST_CASE("loss only: the first label of a text is not a target, whatever its value is") {
  GPT2LMHeadModel model(GPT2Config{.vocab_size = 40,
                                   .n_positions = 32,
                                   .n_embd = 16,
                                   .n_layer = 1,
                                   .n_head = 2,
                                   .resid_pdrop = 0,
                                   .embd_pdrop = 0,
                                   .attn_pdrop = 0});
  model.initialize();
  model.train();
  TensorDict batch = padded(ragged_rows(40));
  batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"].eq(0), -100);
  check_equal(step(model, batch, true), step(model, batch, false));
}

TEST_CASE("packed batch: a classifier of texts gives the logits of each text") {
  BertForSequenceClassification model(config_of(true));
  torch::manual_seed(3);
  model.initialize();
  model.eval();
  const std::vector<TensorDict> rows = ragged_rows(kClasses);
  TensorDict whole = padded(rows), packed = flat(rows);
  whole.erase("labels");
  packed["labels"] = at::arange(4, at::kLong);
  const ModelOutput out = model.forward(packed);
  CHECK((out.logits - model.forward(whole).logits).abs().max().item<double>() < 1e-5);
  CHECK(out.loss.defined());
  // If the batch has no positions, they count from 0 in each text.
  packed.erase("position_ids");
  CHECK((model.forward(packed).logits - out.logits).abs().max().item<double>() == 0);
}

TEST_CASE("packed batch: bounds that do not fit are refused") {
  BertForMaskedLM model(config_of(true));
  model.initialize();
  const TensorDict good = flat(ragged_rows(40));
  const auto code = [&](const at::Tensor& bounds) {
    TensorDict batch = good;
    batch["cu_seq_lens_q"] = bounds;
    return code_of([&] { model.forward(batch); });
  };
  CHECK(code(good.at("cu_seq_lens_q")) == "none");
  for (const std::vector<std::int64_t>& bounds : std::vector<std::vector<std::int64_t>>{
           {0, 7, 10, 22, 26}, {1, 7, 27}, {0, 7, 7, 27}, {0, 10, 7, 27}, {0}, {0, 1L << 50, 27}}) {
    CHECK(code(at::tensor(bounds)) == "models.packed-batch");
  }
  TensorDict two_rows = good;
  two_rows["input_ids"] = two_rows["input_ids"].repeat({2, 1});
  CHECK(code_of([&] { model.forward(two_rows); }) == "models.packed-batch");
}

}  // namespace models_loss_only_test
