#include "hasten/data/task_collators.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include "hasten/data/loader.h"
#include "unit/data/error_of.h"

namespace task_collators_test {

using namespace hasten;

namespace {

at::Tensor numbers(std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); }

using Rows = std::vector<TensorDict>;

}  // namespace

TEST_CASE("task collators: targets are padded on their own, and -100 never reaches the decoder") {
  const Rows rows = {{{"input_ids", numbers({5, 6, 7})}, {"labels", numbers({8, -100, 9})}},
                     {{"input_ids", numbers({5})}, {"labels", numbers({8})}}};
  const TensorDict batch =
      DataCollatorForSeq2Seq{.pad_token_id = 1, .decoder_start_token_id = 2}(rows);
  CHECK(at::equal(batch.at("labels"), numbers({8, -100, 9, 8, -100, -100}).view({2, 3})));
  CHECK(at::equal(batch.at("decoder_input_ids"), numbers({2, 8, 1, 2, 8, 1}).view({2, 3})));
  CHECK(DataCollatorForSeq2Seq{.max_length = 6}(rows).at("labels").size(1) == 6);
  const Rows inputs = {{{"input_ids", numbers({5})}}};
  CHECK(!DataCollatorForSeq2Seq{}(inputs).contains("labels"));
}

TEST_CASE("task collators: rows that do not fit name the row and the column") {
  const auto error = [](auto&& collator, Rows rows) { return error_of([&] { collator(rows); }); };
  CHECK(contains(error(DataCollatorForSeq2Seq{}, {{{"input_ids", numbers({5})},
                                                   {"labels", at::scalar_tensor(1, at::kLong)}}}),
                 "row 0, column \"labels\": got Long [], expected [target tokens]"));
  CHECK(contains(error(DataCollatorForSeq2Seq{.max_length = 1},
                       {{{"input_ids", numbers({5})}, {"labels", numbers({1, 2})}}}),
                 "got 2 tokens, expected at most max_length, 1"));
  CHECK(contains(
      error(DataCollatorForMultipleChoice{}, {{{"input_ids", at::ones({2, 3}, at::kLong)}},
                                              {{"input_ids", at::ones({3, 3}, at::kLong)}}}),
      "row 1, column \"input_ids\": got Long [3, 3], expected [2 choices, tokens]"));
  CHECK(contains(error(DataCollatorForMultipleChoice{}, {{{"input_ids", numbers({1})}}}),
                 "expected [choices, tokens]"));
  CHECK(contains(error(DataCollatorForMultipleChoice{},
                       {{{"input_ids", at::ones({2, 3}, at::kLong)}, {"x", at::ones({3})}}}),
                 "column \"x\": got Float [3], expected one entry per choice"));
  CHECK(contains(error(DataCollatorWithFlattening{},
                       {{{"input_ids", numbers({5, 6})}, {"labels", numbers({1})}}}),
                 "expected whole numbers [2], one per token"));
  CHECK(contains(error(DataCollatorWithFlattening{}, {}), "a batch without rows"));
}

TEST_CASE("task collators: a loader of tokens may flatten its batches") {
  TokenDataset dataset;
  dataset.push_back(std::vector<std::int32_t>{5, 6, 7});
  dataset.push_back(std::vector<std::int32_t>{8, 9});
  dataset.set_labels(numbers({1, 0}));  // labels of rows have no place in a flat batch
  auto loader = make_loader(std::move(dataset), {.batch_size = 2},
                            DataCollatorWithFlattening{.return_flash_attn_kwargs = true});
  for (const TensorDict& batch : loader) {
    CHECK(at::equal(batch.at("input_ids"), numbers({5, 6, 7, 8, 9}).view({1, 5})));
    CHECK(at::equal(batch.at("labels"), numbers({-100, 6, 7, -100, 9}).view({1, 5})));
    CHECK(at::equal(batch.at("position_ids"), numbers({0, 1, 2, 0, 1}).view({1, 5})));
    CHECK(at::equal(batch.at("cu_seq_lens_q"), at::tensor({0, 3, 5}, at::kInt)));
    CHECK(batch.at("max_length_k").item<std::int64_t>() == 3);
  }
}

}  // namespace task_collators_test
