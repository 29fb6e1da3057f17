// Losses without logits and without padding, and batches that a collator or pack_rows has packed.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/error.h"
#include "hasten/data/task_collators.h"
#include "hasten/models/bert.h"
#include "hasten/models/gpt2.h"
#include "hasten/models/llama.h"
#include "hasten/models/pack_rows.h"
#include "unit/code_of.h"
#include "unit/each_row_attention.h"

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

// Compares the packed batch with the padded batch, with the CPU's operator and with the code that
// calls a GPU's operator.
void check_packed_equals(PreTrainedModel& model, const TensorDict& batch) {
  torch::manual_seed(3);
  model.initialize();
  model.train();
  const TensorDict packed = pack_rows(batch, model.shifts_labels());
  REQUIRE(packed.contains(kPackedRows));
  REQUIRE_FALSE(packed.contains("attention_mask"));
  const Step whole = step(model, batch, false);
  for (const bool loss_only : {false, true}) {
    CAPTURE(loss_only);
    check_equal(step(model, packed, loss_only), whole);
    const ops::PackedOperatorReplacement on_cpu(each_row_attention);
    const std::int64_t before = each_row_attention_calls;
    check_equal(step(model, packed, loss_only), whole);
    CHECK(each_row_attention_calls == before + 2);  // one for each layer
  }
}

void check_packed_equals(PreTrainedModel& model, std::int64_t classes) {
  std::vector<TensorDict> rows = ragged_rows(classes);
  check_packed_equals(model, padded(rows));
  // All rows are equally long, so there is no padding.
  rows = {rows[2], rows[2]};
  check_packed_equals(model, padded(rows));
}

}  // namespace

TEST_CASE("packed rows: the loss and the gradients of each model are those of the padded batch") {
  BertForTokenClassification tagger(config_of(true));
  check_packed_equals(tagger, kClasses);
  BertForMaskedLM filler(config_of(false));
  check_packed_equals(filler, 40);
  GPT2LMHeadModel gpt2(GPT2Config{.vocab_size = 40,
                                  .n_positions = 32,
                                  .n_embd = 16,
                                  .n_layer = 2,
                                  .n_head = 2,
                                  .resid_pdrop = 0,
                                  .embd_pdrop = 0,
                                  .attn_pdrop = 0});
  check_packed_equals(gpt2, 40);
  LlamaForCausalLM llama(LlamaConfig{.vocab_size = 40,
                                     .hidden_size = 16,
                                     .intermediate_size = 32,
                                     .num_hidden_layers = 2,
                                     .num_attention_heads = 4,
                                     .num_key_value_heads = 2,
                                     .max_position_embeddings = 32});
  check_packed_equals(llama, 40);
}

TEST_CASE("packed rows: a classifier has a label for each text") {
  BertForSequenceClassification model(config_of(true));
  torch::manual_seed(3);
  model.initialize();
  model.eval();
  TensorDict batch = padded(ragged_rows(kClasses));
  batch["labels"] = at::arange(4, at::kLong);
  const TensorDict packed = pack_rows(batch, model.shifts_labels());
  CHECK(packed.at("labels").size(0) == 4);
  const auto distance = [&](const ModelOutput& out) {
    return (out.logits - model.forward(batch).logits).abs().max().item<double>();
  };
  CHECK(distance(model.forward(packed)) < 1e-5);
  const ops::PackedOperatorReplacement on_cpu(each_row_attention);
  CHECK(distance(model.forward(packed)) < 1e-5);
}

TEST_CASE("packed rows: the columns of a packed batch") {
  const TensorDict batch = {{"input_ids", at::tensor({5, 6, 7, 0, 8, 9, 0, 0}).view({2, 4})},
                            {"attention_mask", at::tensor({1, 1, 1, 0, 1, 1, 0, 0}).view({2, 4})},
                            {"token_type_ids", at::tensor({0, 1, 1, 0, 0, 1, 0, 0}).view({2, 4})},
                            {"labels", at::tensor({1, 2, 3, -100, 4, 5, -100, -100}).view({2, 4})},
                            {"weight", at::tensor({0.5, 2.0})}};
  const auto check_column = [](const TensorDict& packed, const char* name,
                               const std::vector<std::int64_t>& expected) {
    CAPTURE(name);
    const at::Tensor& column = packed.at(name);
    CHECK(column.sizes() == std::vector<std::int64_t>{1, 5});
    CHECK(at::equal(column.view({-1}), at::tensor(expected)));
  };
  for (const bool shifts : {false, true}) {
    CAPTURE(shifts);
    const TensorDict packed = pack_rows(batch, shifts);
    check_column(packed, "input_ids", {5, 6, 7, 8, 9});
    check_column(packed, "position_ids", {0, 1, 2, 0, 1});
    check_column(packed, "token_type_ids", {0, 1, 1, 0, 1});
    // With shifted labels, no token predicts the first label of a text.
    check_column(packed, "labels",
                 shifts ? std::vector<std::int64_t>{-100, 2, 3, -100, 5}
                        : std::vector<std::int64_t>{1, 2, 3, 4, 5});
    CHECK(at::equal(packed.at("weight"), batch.at("weight")));
    CHECK((packed.at(kPackedRows).scalar_type() == at::kInt));
    CHECK(at::equal(packed.at(kPackedRows), at::tensor({0, 3, 5}, at::kInt)));
    CHECK_FALSE(packed.contains("attention_mask"));
    CHECK(pack_rows(packed, shifts).size() == packed.size());
  }
}

TEST_CASE("packed rows: a batch whose loss would change stays as it is") {
  const TensorDict good = padded(ragged_rows(40));
  const auto is_packed = [](const TensorDict& batch, bool shifts) {
    return pack_rows(batch, shifts).contains(kPackedRows);
  };
  for (const bool shifts : {false, true}) {
    CAPTURE(shifts);
    CHECK(is_packed(good, shifts));
    TensorDict without_mask = good;
    without_mask.erase("attention_mask");
    CHECK_FALSE(is_packed(without_mask, shifts));
    TensorDict padded_on_the_left = good;
    padded_on_the_left["attention_mask"] = good.at("attention_mask").flip({1});
    CHECK_FALSE(is_packed(padded_on_the_left, shifts));
    // The last token of the second row predicts the first masked one, which has a label.
    TensorDict labelled_padding = good;
    labelled_padding["labels"] = good.at("labels").clone();
    labelled_padding["labels"][1][3] = 1;
    CHECK_FALSE(is_packed(labelled_padding, shifts));
  }
}

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
