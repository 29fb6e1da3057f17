#include "data/static_packed_rows.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "data/repeated_batch.h"
#include "hasten/data/detail/packed_rows.h"
#include "hasten/models/bert.h"
#include "hasten/models/pack_rows.h"
#include "unit/trainer/tiny.h"

namespace data_static_packed_rows_test {

using namespace hasten;

namespace {

std::vector<std::int64_t> lengths_of(const at::Tensor& bounds) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t row = 0; row + 1 < bounds.size(0); ++row)
    lengths.push_back(bounds[row + 1].item<std::int64_t>() - bounds[row].item<std::int64_t>());
  return lengths;
}

// Returns a packed batch of rows of these lengths, with a label for each row or for each token.
TensorDict packed(const std::vector<std::int64_t>& lengths, bool has_token_labels) {
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const at::Tensor ids = at::randint(1, 30, {std::ssize(lengths), longest}, at::kLong);
  const at::Tensor mask = at::zeros_like(ids);
  for (std::size_t row = 0; row < lengths.size(); ++row)
    mask[static_cast<std::int64_t>(row)].slice(0, 0, lengths[row]).fill_(1);
  const at::Tensor labels =
      has_token_labels ? ids.masked_fill(mask.eq(0), -100) : at::arange(std::ssize(lengths)) % 2;
  return pack_rows({{"input_ids", ids}, {"attention_mask", mask}, {"labels", labels}}, false);
}

std::int64_t tokens_of(const TensorDict& batch) { return batch.at("input_ids").size(1); }

std::vector<std::int64_t> random_lengths(std::int64_t rows, std::int64_t most) {
  const at::Tensor drawn = at::randint(1, most + 1, {rows}, at::kLong);
  return {drawn.const_data_ptr<std::int64_t>(), drawn.const_data_ptr<std::int64_t>() + rows};
}

}  // namespace

TEST_CASE("static packed rows: the added tokens are rows of their own that losses ignore") {
  torch::manual_seed(1);
  for (const bool has_token_labels : {false, true}) {
    const TensorDict batch = packed({5, 90, 41}, has_token_labels);
    const TensorDict padded = with_static_packed_rows(batch);
    CHECK(tokens_of(padded) == 160);  // 136 tokens and one for each added row, in steps of 32
    CHECK(lengths_of(padded.at(kPackedRows)) ==
          std::vector<std::int64_t>{5, 90, 41, 3, 3, 3, 3, 3, 3, 3, 3});
    for (const auto& [name, tensor] : batch) {
      CAPTURE(name);
      const at::Tensor& longer = padded.at(name);
      CHECK((longer.scalar_type() == tensor.scalar_type()));
      const std::int64_t last = tensor.dim() - 1, count = tensor.size(last);
      CHECK(at::equal(longer.narrow(last, 0, count), tensor));
      const at::Tensor added = longer.narrow(last, count, longer.size(last) - count);
      if (name == "labels") CHECK(added.eq(-100).all().item<bool>());
      if (name == "input_ids") CHECK(added.eq(0).all().item<bool>());
    }
  }
}

TEST_CASE("static packed rows: few numbers of tokens, with at most an eighth or a quarter added") {
  for (const std::int64_t rows : {1, 23, 24, 40}) {
    CAPTURE(rows);
    const std::int64_t steps = rows < 24 ? 4 : 8;
    std::set<std::int64_t> numbers;
    for (std::int64_t tokens = 129; tokens <= 1024; ++tokens) {
      std::vector<std::int64_t> lengths(static_cast<std::size_t>(rows), tokens / rows);
      lengths[0] += tokens % rows;
      const std::int64_t made = tokens_of(with_static_packed_rows(packed(lengths, true)));
      CHECK(made >= tokens + kFillerRows);
      if (tokens >= 256) CHECK(made <= (tokens + kFillerRows) * (steps + 1) / steps);
      numbers.insert(made);
    }
    CHECK(std::ssize(numbers) <= 3 * steps + 1);  // three doublings
  }
}

TEST_CASE("static packed rows: a batch whose labels cannot mark added rows stays as it is") {
  const TensorDict batch = packed({5, 9}, true);
  const auto changed = [&](const std::string& name, const at::Tensor& tensor) {
    TensorDict other = batch;
    other[name] = tensor;
    return other;
  };
  TensorDict without_labels = batch;
  without_labels.erase("labels");
  for (const TensorDict& each :
       {without_labels, changed("labels", at::zeros({2})), changed("labels", at::zeros({2, 3})),
        changed("labels", at::zeros({3}, at::kLong)), changed("weights", at::ones({2})),
        changed(kPackedRows, at::tensor({0, 5, 13}, at::kInt)),
        changed("input_ids", at::ones({2, 7}, at::kLong))}) {
    const TensorDict same = with_static_packed_rows(each);
    REQUIRE(same.size() == each.size());
    for (const auto& [name, tensor] : each) CHECK(same.at(name).is_same(tensor));
  }
  CHECK(with_static_packed_rows({{"input_ids", at::ones({1, 4}, at::kLong)}}).size() == 1);
  CHECK(tokens_of(with_static_packed_rows(batch)) == 32);
  CHECK(tokens_of(with_static_packed_rows(changed("labels", at::zeros({2}, at::kLong)))) == 32);
}

TEST_CASE("static packed rows: recorded bounds have a row as long as any batch of the shape") {
  torch::manual_seed(2);
  for (int i = 0; i < 300; ++i) {
    const std::int64_t rows = 1 + i % 40;
    const TensorDict batch = with_static_packed_rows(packed(random_lengths(rows, 70), true));
    const at::Tensor &bounds = batch.at(kPackedRows), recorded = longest_bounds(bounds);
    const std::vector<std::int64_t> own = lengths_of(bounds), made = lengths_of(recorded);
    REQUIRE(made.size() == own.size());
    CHECK(std::accumulate(made.begin(), made.end(), std::int64_t{0}) == tokens_of(batch));
    CHECK(*std::min_element(made.begin(), made.end()) >= 1);
    const std::int64_t longest = *std::max_element(made.begin(), made.end());
    CHECK(longest <= row_limit(bounds));
    // Any rows of this shape: all but one have a token.
    CHECK(longest == std::min(row_limit(bounds), tokens_of(batch) - std::ssize(own) + 1));
    CHECK(row_limit(recorded) == row_limit(bounds));
  }
}

TEST_CASE("static packed rows: bounds of any integer type are found in host memory") {
  const at::Tensor bounds = at::tensor({0, 5, 14}, at::kLong);
  CHECK(packed_rows_on_host({{kPackedRows, bounds}}).is_same(bounds));
  CHECK_FALSE(int32_rows_on_host({{kPackedRows, bounds}}).defined());
  CHECK(int32_rows_on_host({{kPackedRows, bounds.to(at::kInt)}}).defined());
  CHECK_FALSE(packed_rows_on_host({{"input_ids", bounds}}).defined());
}

TEST_CASE("static packed rows: a step has a shape with the limit of its rows") {
  const auto shape = [](const std::vector<std::int64_t>& lengths) {
    return shape_of_step({AnyBatch(with_static_packed_rows(packed(lengths, true)))});
  };
  CHECK(shape({20, 30, 31}) == shape({31, 29, 22}));
  CHECK(shape({20, 30, 31}) != shape({20, 28, 33}));  // more than 32 tokens
  CHECK(shape({20, 30, 31}) != shape({20, 61}));
  const AnyBatch batch(with_static_packed_rows(packed({20, 30, 31}, true)));
  CHECK(unrepeatable_batch(batch, "").empty());
  CHECK(unrepeatable_batch(batch, "Net").find("the class Net") != std::string::npos);
  TensorDict wide = *AnyBatch(batch).get_if<TensorDict>();
  wide[kPackedRows] = wide[kPackedRows].to(at::kLong);
  CHECK(unrepeatable_batch(AnyBatch(wide), "") ==
        "packed batches without int32 bounds of their rows in host memory");
  AnyBatch recorded = with_own_memory(batch);
  const TensorDict& columns = *recorded.get_if<TensorDict>();
  CHECK(lengths_of(columns.at(kPackedRowsOnHost))[0] == 32);
  const AnyBatch later(with_static_packed_rows(packed({31, 29, 22}, true)));
  overwrite(recorded, later);
  CHECK(at::equal(columns.at("input_ids"), later.get_if<TensorDict>()->at("input_ids")));
  CHECK(at::equal(columns.at(kPackedRows), later.get_if<TensorDict>()->at(kPackedRows)));
  CHECK(lengths_of(columns.at(kPackedRowsOnHost))[0] == 32);
}

TEST_CASE("static packed rows: a model has the loss and the gradients of the batch without them") {
  torch::manual_seed(3);
  const auto check = [](auto& model, const TensorDict& batch) {
    model.train();
    const auto step = [&](const TensorDict& given) {
      model.zero_grad();
      const at::Tensor loss = model.forward(given).loss;
      loss.backward();
      return loss.template item<double>();
    };
    const double whole = step(batch);
    TensorDict gradients;
    for (const auto& item : model.named_parameters()) {
      if (item.value().grad().defined()) gradients[item.key()] = item.value().grad().clone();
    }
    CHECK(step(with_static_packed_rows(batch)) == doctest::Approx(whole).epsilon(1e-6));
    for (const auto& item : model.named_parameters()) {
      if (!item.value().grad().defined()) continue;
      CAPTURE(item.key());
      CHECK(at::allclose(item.value().grad(), gradients.at(item.key()), 1e-4, 1e-6));
    }
  };
  BertForSequenceClassification rows(tiny_runs::tiny(0));
  BertForTokenClassification tokens(tiny_runs::tiny(0));
  rows.initialize();
  tokens.initialize();
  check(rows, packed({5, 9, 14}, false));
  TensorDict classes = packed({5, 9, 14}, true);
  classes["labels"] = classes["labels"] % 2;
  check(tokens, classes);
}

}  // namespace data_static_packed_rows_test
