#include "hasten/data/language_modeling.h"

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <map>
#include <string>

#include "hasten/data/column_dataset.h"
#include "hasten/data/loader.h"
#include "hasten/data/token_dataset.h"
#include "unit/data/error_of.h"

namespace language_modeling_test {

using namespace hasten;

namespace {

constexpr std::int64_t kVocabulary = 1000, kMask = 4;

// [CLS] ... [SEP] with ids from 5; those from 500 on continue a word.
TokenDataset texts(std::int64_t rows, std::int64_t length) {
  TokenDataset dataset;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::vector<std::int32_t> ids = {2};
    for (std::int64_t token = 0; token < length - row % 3; ++token)
      ids.push_back(
          static_cast<std::int32_t>(5 + (row * 31 + token * 7) % 490 + (token % 3 == 1 ? 500 : 0)));
    ids.push_back(3);
    dataset.push_back(ids);
  }
  return dataset;
}

DataCollatorForLanguageModeling masked() {
  DataCollatorForLanguageModeling collator;
  collator.vocabulary.size = kVocabulary;
  collator.vocabulary.mask_token_id = kMask;
  collator.vocabulary.special_ids = {0, 1, 2, 3, 4};
  collator.vocabulary.continues_word.assign(kVocabulary, false);
  for (std::size_t id = 500; id < kVocabulary; ++id) collator.vocabulary.continues_word[id] = true;
  return collator;
}

// Returns each row's ids and labels in one epoch, by the first ten labels and ids of the text.
std::vector<std::vector<std::int64_t>> masked_rows(const LoaderOptions& options,
                                                   std::int64_t epoch = 0) {
  auto loader = make_loader(texts(24, 30), options, masked());
  loader.set_epoch(epoch);
  std::vector<std::vector<std::int64_t>> rows;
  for (const TensorDict& batch : loader) {
    for (std::int64_t row = 0; row < batch.at("labels").size(0); ++row) {
      std::vector<std::int64_t>& all = rows.emplace_back();
      for (const char* name : {"input_ids", "labels"}) {
        // Rows are padded to the longest of their batch: the first 28 tokens are those of any.
        for (std::int64_t token = 0; token < 28; ++token)
          all.push_back(batch.at(name)[row][token].item<std::int64_t>());
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("language modelling: the shares of masked, random and kept tokens match the options") {
  const TokenDataset dataset = texts(400, 120);
  auto loader = make_loader(dataset, {.batch_size = 50}, masked());
  double tokens = 0, selected = 0, replaced = 0, random = 0;
  std::int64_t first = 0;
  for (const TensorDict& batch : loader) {
    const at::Tensor ids = batch.at("input_ids"), labels = batch.at("labels");
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const TokenRow original = dataset.get(first + row);
      for (std::int64_t token = 0; token < ids.size(1); ++token) {
        const auto label = labels[row][token].item<std::int64_t>(),
                   id = ids[row][token].item<std::int64_t>();
        const auto at = static_cast<std::size_t>(token);
        if (at >= original.input_ids.size() || original.input_ids[at] < 5) {
          CHECK(label == -100);  // special tokens and padding
          continue;
        }
        ++tokens;
        CHECK((label == -100 || label == original.input_ids[at]));
        if (label == -100) {
          CHECK(id == original.input_ids[at]);
          continue;
        }
        ++selected;
        if (id == kMask) ++replaced;
        if (id != kMask && id != label) ++random;
      }
    }
    first += ids.size(0);
  }
  CHECK(first == 400);
  CHECK(selected / tokens == doctest::Approx(0.15).epsilon(0.03));
  CHECK(replaced / selected == doctest::Approx(0.8).epsilon(0.03));
  CHECK(random / selected == doctest::Approx(0.1).epsilon(0.15));
}

TEST_CASE("language modelling: a row's mask depends on seed, epoch and row, and on nothing else") {
  const auto rows = masked_rows({.batch_size = 4, .seed = 5});
  CHECK(masked_rows({.batch_size = 8, .seed = 5}) == rows);
  CHECK(masked_rows({.batch_size = 3, .num_workers = 3, .seed = 5}) == rows);
  CHECK(masked_rows({.batch_size = 4, .seed = 6}) != rows);
  CHECK(masked_rows({.batch_size = 4, .seed = 5}, 1) != rows);
}

TEST_CASE("language modelling: a stream's rows are numbered in their epoch, also after resuming") {
  struct Stream {
    std::shared_ptr<TokenDataset> dataset = std::make_shared<TokenDataset>(texts(24, 30));
    std::int64_t next_row = 0;
    std::optional<TokenRow> next() {
      if (next_row >= dataset->size()) return std::nullopt;
      return dataset->get(next_row++);
    }
    void rewind(std::int64_t) { next_row = 0; }
  };
  const auto labels = [](std::int64_t batch_size, std::int64_t from) {
    auto loader = make_loader(Stream{}, {.batch_size = batch_size, .seed = 5}, masked());
    loader.load_state({.seed = 5, .epoch = 0, .rows = from});
    std::vector<std::int64_t> all;
    for (const TensorDict& batch : loader) {
      for (std::int64_t row = 0; row < batch.at("labels").size(0); ++row) {
        for (std::int64_t token = 0; token < 28; ++token)
          all.push_back(batch.at("labels")[row][token].item<std::int64_t>());
      }
    }
    return all;
  };
  const auto all = labels(4, 0);
  CHECK(labels(8, 0) == all);
  CHECK(labels(4, 8) == std::vector<std::int64_t>(all.begin() + 8 * 28, all.end()));
}

TEST_CASE("language modelling: whole words are masked, and no parts of them") {
  auto collator = masked();
  collator.whole_word_mask = true;
  collator.mlm_probability = 0.4;
  const TokenDataset dataset = texts(60, 40);
  auto loader = make_loader(dataset, {.batch_size = 10}, collator);
  double words = 0, selected = 0;
  std::int64_t first = 0;
  for (const TensorDict& batch : loader) {
    const at::Tensor ids = batch.at("input_ids"), labels = batch.at("labels");
    for (std::int64_t row = 0; row < ids.size(0); ++row) {
      const TokenRow original = dataset.get(first + row);
      for (std::size_t token = 1; token + 1 < original.input_ids.size(); ++token) {
        const auto at = static_cast<std::int64_t>(token);
        const bool is_masked = labels[row][at].item<std::int64_t>() != -100;
        CHECK((ids[row][at].item<std::int64_t>() == kMask) == is_masked);
        if (original.input_ids[token] >= 500) {
          CHECK(is_masked == (labels[row][at - 1].item<std::int64_t>() != -100));
        } else {
          ++words;
          selected += is_masked ? 1 : 0;
        }
      }
    }
    first += ids.size(0);
  }
  CHECK(selected / words == doctest::Approx(0.4).epsilon(0.1));
}

TEST_CASE("language modelling: word_ids and special_tokens_mask of the rows take precedence") {
  auto collator = masked();
  collator.whole_word_mask = true;
  collator.mlm_probability = 1;
  const auto row = [](std::vector<std::int64_t> values) { return at::tensor(values, at::kLong); };
  const std::vector<TensorDict> rows = {{{"input_ids", row({2, 10, 11, 3})},
                                         {"special_tokens_mask", row({0, 1, 0, 1})},
                                         {"word_ids", row({0, -1, 1, -1})}},
                                        {{"input_ids", row({2, 3})},
                                         {"special_tokens_mask", row({1, 1})},
                                         {"word_ids", row({-1, -1})}}};
  const std::vector<RowContext> contexts(2);
  const TensorDict batch = collator(std::span<const TensorDict>(rows), contexts);
  CHECK(batch.size() == 3);
  CHECK(
      at::equal(batch.at("labels"), row({2, -100, 11, -100, -100, -100, -100, -100}).view({2, 4})));
  CHECK(at::equal(batch.at("input_ids"), row({4, 10, 4, 3, 2, 3, 0, 0}).view({2, 4})));
}

TEST_CASE("language modelling: a masked batch needs one context for each row") {
  const TokenDataset dataset = texts(2, 5);
  const std::vector<TokenRow> rows = {dataset.get(0), dataset.get(1)};
  for (const std::size_t count : {1u, 2u, 3u}) {
    CAPTURE(count);
    const std::vector<RowContext> contexts(count);
    const std::string error =
        error_of([&] { masked()(std::span<const TokenRow>(rows), contexts); });
    CHECK((error == "none") == (count == rows.size()));
    if (count != rows.size()) CHECK(contains(error, "expected 2, one for each row"));
  }
}

TEST_CASE("language modelling: unusable options are refused") {
  const TokenDataset dataset = texts(1, 5);
  const std::vector<TokenRow> rows = {dataset.get(0)};
  const std::vector<RowContext> contexts(1);
  const auto error = [&](auto&& change) {
    auto collator = masked();
    change(collator);
    return error_of([&] { collator(std::span<const TokenRow>(rows), contexts); });
  };
  CHECK(error([](auto&) {}) == "none");
  CHECK(contains(error([](auto& c) { c.mlm_probability = 1.5; }), "mlm_probability: got 1.5"));
  CHECK(contains(error([](auto& c) { c.random_replace_prob = 0.3; }),
                 "mask_replace_prob + random_replace_prob: got 1.1"));
  CHECK(contains(error([](auto& c) { c.vocabulary.mask_token_id = -1; }), "no mask token"));
  CHECK(contains(error([](auto& c) { c.vocabulary.size = 0; }), "vocabulary.size: got 0"));
  CHECK(contains(error([](auto& c) { c.mlm = false, c.whole_word_mask = true; }), "data.option"));
  CHECK(contains(error([](auto& c) {
                   c.whole_word_mask = true;
                   c.vocabulary.continues_word.clear();
                 }),
                 "rows without word_ids"));
}

}  // namespace language_modeling_test
