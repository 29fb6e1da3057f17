// Compares collators with the collators of transformers, and orders of rows with the samplers of
// transformers, torch and datasets (generate_data.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "hasten/data/language_modeling.h"
#include "hasten/data/sampler.h"
#include "hasten/data/streams.h"
#include "hasten/data/task_collators.h"
#include "hasten/data/views.h"

namespace oracle_data_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;

Json cases() {
  std::ifstream file(std::string(HASTEN_TEST_DATA) + "/oracle/data/loading/cases.json");
  return Json::parse(file);
}

// Converts nested lists of whole numbers to a tensor.
at::Tensor tensor_of(const Json& json) {
  if (!json.is_array()) return at::scalar_tensor(json.get<std::int64_t>(), at::kLong);
  std::vector<at::Tensor> parts;
  for (const Json& part : json) parts.push_back(tensor_of(part));
  return parts.empty() ? at::empty({0}, at::kLong) : at::stack(parts);
}

std::vector<TensorDict> rows_of(const Json& json) {
  std::vector<TensorDict> rows;
  for (const Json& one : json) {
    TensorDict& row = rows.emplace_back();
    for (const auto& [name, value] : one.items()) {
      if (name != "offset_mapping") row[name] = tensor_of(value);
    }
  }
  return rows;
}

template <class Value>
void read_option(const Json& options, const char* name, Value& value) {
  if (options.contains(name)) value = options.at(name).get<Value>();
}
void read_option(const Json& options, const char* name, std::optional<std::int64_t>& value) {
  if (options.contains(name)) value = options.at(name).get<std::int64_t>();
}

void check_batch(const std::string& name, const TensorDict& batch, const Json& expected) {
  INFO(name);
  CHECK(batch.size() == expected.size());
  for (const auto& [column, value] : expected.items()) {
    INFO(column);
    REQUIRE(batch.contains(column));
    const at::Tensor want = tensor_of(value);
    CHECK(batch.at(column).sizes() == want.sizes());
    CHECK(at::equal(batch.at(column).to(at::kLong), want));
  }
}

// Calls `collate(options, rows)` for each case of a collator, and compares the batches.
template <class Collate>
void check_collator(const std::string& name, Collate&& collate) {
  const Json all = cases().at("collators").at(name);
  CHECK(!all.empty());
  for (const Json& one : all) {
    const std::vector<TensorDict> rows = rows_of(one.at("rows"));
    check_batch(name, collate(one.at("options"), std::span<const TensorDict>(rows)),
                one.at("batch"));
  }
}

DataCollatorForLanguageModeling language_model(const Json& options) {
  DataCollatorForLanguageModeling collator;
  collator.vocabulary.size = 30;
  collator.vocabulary.mask_token_id = 4;
  collator.vocabulary.special_ids = {0, 1, 2, 3, 4};
  read_option(options, "mlm", collator.mlm);
  read_option(options, "mlm_probability", collator.mlm_probability);
  read_option(options, "mask_replace_prob", collator.mask_replace_prob);
  read_option(options, "random_replace_prob", collator.random_replace_prob);
  read_option(options, "pad_to_multiple_of", collator.pad_to_multiple_of);
  return collator;
}

// A dataset and a stream of the rows first, first + 1, and so on.
struct CountingRows {
  std::int64_t first, rows;
  std::int64_t size() const { return rows; }
  std::int64_t get(std::int64_t index) const { return first + index; }
};
struct CountingStream {
  std::int64_t first, rows, at = 0;
  std::optional<std::int64_t> next() {
    return at < rows ? std::optional(first + at++) : std::nullopt;
  }
  void rewind(std::int64_t) { at = 0; }
};

std::vector<std::int64_t> order_of(std::int64_t rows, const Json& one, const OrderFunction& order) {
  return order(rows, one.at("seed").get<std::uint64_t>(), 0);
}

}  // namespace

TEST_CASE("collators: batches equal those of transformers") {
  const auto padding = [](const Json& options, std::span<const TensorDict> rows) {
    DataCollatorWithPadding collator;
    read_option(options, "pad_to_multiple_of", collator.pad_to_multiple_of);
    read_option(options, "max_length", collator.max_length);
    read_option(options, "label_pad_token_id", collator.label_pad_token_id);
    return collator(rows);
  };
  check_collator("padding", padding);
  check_collator("token_classification", padding);
  check_collator("seq2seq", [](const Json& options, std::span<const TensorDict> rows) {
    DataCollatorForSeq2Seq collator;
    read_option(options, "pad_to_multiple_of", collator.pad_to_multiple_of);
    read_option(options, "decoder_start_token_id", collator.decoder_start_token_id);
    return collator(rows);
  });
  check_collator("multiple_choice", [](const Json& options, std::span<const TensorDict> rows) {
    DataCollatorForMultipleChoice collator;
    read_option(options, "pad_to_multiple_of", collator.pad_to_multiple_of);
    return collator(rows);
  });
  check_collator("flattening", [](const Json& options, std::span<const TensorDict> rows) {
    DataCollatorWithFlattening collator;
    read_option(options, "return_position_ids", collator.return_position_ids);
    read_option(options, "separator_id", collator.separator_id);
    read_option(options, "return_flash_attn_kwargs", collator.return_flash_attn_kwargs);
    read_option(options, "return_seq_idx", collator.return_seq_idx);
    read_option(options, "position_ids_start", collator.position_ids_start);
    return collator(rows);
  });
}

TEST_CASE("collators: batches for language models equal those of transformers") {
  const auto collate = [](const Json& options, std::span<const TensorDict> rows) {
    const std::vector<RowContext> contexts(rows.size());
    return language_model(options)(rows, contexts);
  };
  check_collator("language_modeling", collate);
  check_collator("whole_words", [](const Json& options, std::span<const TensorDict> rows) {
    DataCollatorForLanguageModeling collator = language_model(options);
    collator.whole_word_mask = true;
    collator.vocabulary.continues_word.assign(30, false);
    const std::vector<RowContext> contexts(rows.size());
    return collator(rows, contexts);
  });
}

TEST_CASE("samplers: orders equal those of transformers and torch with the same generator") {
  const Json orders = cases().at("orders");
  const auto lengths = orders.at("lengths").get<std::vector<std::int64_t>>();
  for (const Json& one : orders.at("length_grouped")) {
    const auto rows = one.at("rows").get<std::int64_t>();
    const OrderFunction order = length_grouped_order({lengths.begin(), lengths.begin() + rows},
                                                     one.at("batch_size").get<std::int64_t>());
    CHECK(order_of(rows, one, order) == one.at("order").get<std::vector<std::int64_t>>());
  }
  const auto weights = orders.at("weights").get<std::vector<double>>();
  for (const Json& one : orders.at("weighted")) {
    const OrderFunction order = weighted_order({.weights = weights,
                                                .num_samples = one.at("count").get<std::int64_t>(),
                                                .replacement = one.at("replacement").get<bool>()});
    CHECK(order_of(static_cast<std::int64_t>(weights.size()), one, order) ==
          one.at("order").get<std::vector<std::int64_t>>());
  }
}

TEST_CASE("datasets: interleaved rows equal those of datasets") {
  const Json all = cases().at("interleaved");
  REQUIRE(all.at("sizes") == Json({3, 4, 5}));
  for (const auto& [name, strategy] :
       {std::pair{"first_exhausted", StoppingStrategy::first_exhausted},
        std::pair{"all_exhausted", StoppingStrategy::all_exhausted},
        std::pair{"all_exhausted_without_replacement",
                  StoppingStrategy::all_exhausted_without_replacement}}) {
    INFO(name);
    const InterleaveOptions options{.stopping_strategy = strategy};
    const auto rows = interleave_datasets(options, CountingRows{0, 3}, CountingRows{100, 4},
                                          CountingRows{200, 5});
    std::vector<std::int64_t> read, streamed;
    for (std::int64_t row = 0; row < rows.size(); ++row) read.push_back(rows.get(row, {}));
    CHECK(read == all.at("rows").at(name).get<std::vector<std::int64_t>>());
    auto stream = interleave_datasets(options, CountingStream{0, 3}, CountingStream{100, 4},
                                      CountingStream{200, 5});
    stream.rewind(0);
    while (const auto row = stream.next()) streamed.push_back(*row);
    CHECK(streamed == all.at("streams").at(name).get<std::vector<std::int64_t>>());
  }
}

}  // namespace oracle_data_test
