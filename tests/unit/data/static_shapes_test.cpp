#include "hasten/data/detail/static_shapes.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "hasten/base/error.h"
#include "models/losses.h"

namespace data_static_shapes_test {

using namespace hasten;

namespace {

TensorDict batch_of(std::int64_t rows, std::int64_t length) {
  return {{"input_ids", at::randint(1, 60, {rows, length})},
          {"attention_mask", at::ones({rows, length}, at::kLong)},
          {"labels", at::arange(rows)}};
}

}  // namespace

TEST_CASE("static shapes: lengths are rounded up to a power of two or halfway to it") {
  for (const auto& [length, padded] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 16},
                                                          {16, 16},
                                                          {17, 32},
                                                          {32, 32},
                                                          {33, 48},
                                                          {48, 48},
                                                          {49, 64},
                                                          {65, 96},
                                                          {97, 128},
                                                          {129, 192},
                                                          {193, 256},
                                                          {300, 384},
                                                          {385, 512}})
    CHECK(padded_length(length, {}) == padded);
  CHECK(padded_length(17, {.max_length = 20}) == 20);
  CHECK(padded_length(20, {.max_length = 20}) == 20);
  CHECK(padded_length(5, {.lengths = {8, 100}}) == 8);
  CHECK(padded_length(9, {.lengths = {8, 100}}) == 100);
  CHECK(padded_length(101, {.lengths = {8, 100}}) == 101);
  CHECK_THROWS_AS(padded_length(21, {.max_length = 20}), DataError);
}

TEST_CASE("static shapes: padding is masked, and the original values stay") {
  const TensorDict batch = batch_of(5, 20), padded = with_static_shape(batch, 8, {});
  CHECK(padded.at("input_ids").sizes() == at::IntArrayRef{8, 32});
  for (const auto& [name, tensor] : batch) {
    at::Tensor kept = padded.at(name).narrow(0, 0, 5);
    if (tensor.dim() > 1) kept = kept.narrow(1, 0, 20);
    CHECK(at::equal(kept, tensor));
  }
  CHECK(padded.at("attention_mask").narrow(1, 20, 12).eq(0).all().item<bool>());
  CHECK(padded.at("labels").narrow(0, 5, 3).eq(-100).all().item<bool>());
  // A row without a token would be a softmax over nothing, so the first row is repeated.
  CHECK(at::equal(padded.at("input_ids")[6], padded.at("input_ids")[0]));
  CHECK(padded.at("attention_mask")[6].sum().item<std::int64_t>() == 20);
}

TEST_CASE("static shapes: a mask is added, and labels of tokens and other names are found") {
  TensorDict batch = {{"input_ids", at::ones({2, 20}, at::kLong)},
                      {"tags", at::zeros({2, 20}, at::kLong)}};
  const TensorDict padded = with_static_shape(batch, 3, {.labels = "tags"});
  CHECK(padded.at("attention_mask").sum().item<std::int64_t>() == 3 * 20);
  CHECK(padded.at("tags").eq(-100).sum().item<std::int64_t>() == 3 * 32 - 2 * 20);
  batch["attention_mask"] = at::ones({2, 20}, at::kLong);
  CHECK(with_static_shape(batch, 2, {.labels = "tags", .lengths = {20}})
            .at("tags")
            .is_same(batch.at("tags")));
}

TEST_CASE("static shapes: rows without class labels cannot be masked, so their number stays") {
  TensorDict batch = batch_of(5, 20);
  batch["labels"] = at::rand({5});
  const TensorDict padded = with_static_shape(batch, 8, {});
  CHECK(padded.at("input_ids").sizes() == at::IntArrayRef{5, 32});
  CHECK(at::equal(padded.at("labels"), batch.at("labels")));
}

TEST_CASE("static shapes: added rows do not change a loss whose labels are whole numbers") {
  TensorDict batch = batch_of(5, 20);
  const at::Tensor logits = at::randn({8, 1}), scores = at::randn({8, 3});
  const auto loss_of = [](const at::Tensor& outputs, const TensorDict& rows, const char* problem) {
    const at::Tensor& labels = rows.at("labels");
    return row_loss(outputs.narrow(0, 0, labels.size(0)), labels, problem).item<float>();
  };
  CHECK(loss_of(logits, with_static_shape(batch, 8, {}), "") ==
        doctest::Approx(loss_of(logits, batch, "")).epsilon(1e-5));
  const char* const several = "multi_label_classification";
  batch["labels"] = at::randint(2, {5, 3}, at::kLong);
  CHECK(loss_of(scores, with_static_shape(batch, 8, {}), several) ==
        doctest::Approx(loss_of(scores, batch, several)).epsilon(1e-5));
}

TEST_CASE("static shapes: rows without labels are padded if no gradient counts them") {
  const TensorDict images = {{"pixel_values", at::rand({3, 2, 4, 4})}, {"target", at::arange(3)}};
  CHECK(with_static_shape(images, 4, {}).at("pixel_values").size(0) == 3);
  CHECK(with_static_shape(images, 4, {.labels = "target"}).at("target")[3].item<int>() == -100);
  const torch::NoGradGuard no_grad;
  CHECK(with_static_shape(images, 4, {}).at("pixel_values").size(0) == 4);
}

TEST_CASE("static shapes: a label for each class is not mistaken for a label for each token") {
  TensorDict batch = batch_of(5, 20);
  batch["labels"] = at::rand({5, 20});
  const TensorDict padded = with_static_shape(batch, 8, {});
  CHECK(padded.at("input_ids").sizes() == at::IntArrayRef{5, 32});
  CHECK(at::equal(padded.at("labels"), batch.at("labels")));
}

TEST_CASE("static shapes: an unknown column of tokens keeps the length, a named one is padded") {
  TensorDict batch = batch_of(5, 20);
  batch["tags"] = at::ones({5, 20}, at::kLong);
  CHECK(with_static_shape(batch, 5, {}).at("input_ids").size(1) == 20);
  StaticShapes shapes;
  shapes.tokens.emplace_back("tags");
  const TensorDict padded = with_static_shape(batch, 5, shapes);
  CHECK(padded.at("tags").size(1) == 32);
  CHECK(padded.at("tags").narrow(1, 20, 12).eq(0).all().item<bool>());
  batch.erase("tags");
  batch["weights"] = at::rand({5, 20, 2});
  CHECK(with_static_shape(batch, 5, {}).at("input_ids").size(1) == 20);
}

TEST_CASE("static shapes: the padding is removed from outputs") {
  const at::Tensor outputs = at::rand({8, 32, 3});
  CHECK(without_padding(outputs, 5, 20).sizes() == at::IntArrayRef{5, 20, 3});
  CHECK(without_padding(outputs.select(2, 0), 5, 20).sizes() == at::IntArrayRef{5, 32});
  CHECK(without_padding(at::rand({2}), 5, 20).sizes() == at::IntArrayRef{2});
}

}  // namespace data_static_shapes_test
