// The counts of a window. A window is a value, so a copy has its own counts.
#include "prepare/accumulation_window.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

namespace prepare_accumulation_window_test {

using namespace hasten;

TEST_CASE("accumulation window: it is due at its capacity or with the last batch of the data") {
  const auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
  AccumulationWindow window(Models{model});
  window.begin_micro_batch(/*capacity=*/2, /*last_of_data=*/false, /*rows=*/4);
  CHECK(window.is_incomplete());
  CHECK(!window.holds_gradients());
  CHECK(window.count_pass(3.0));
  CHECK(!window.count_pass(3.0));  // a second loss shares the weight
  CHECK(window.holds_gradients());
  AccumulationWindow copy = window;
  window.begin_micro_batch(2, false, 3);
  CHECK(window.is_due());
  CHECK(!copy.is_due());
  copy.begin_micro_batch(5, /*last_of_data=*/true, 1);
  CHECK(copy.is_due());
  CHECK(window.count_pass(1.0));
  CHECK(window.weight() == 4.0);
  CHECK(window.batches() == 2);
  window.close(/*total_weight=*/8.0);
  CHECK(window.total_weight() == 8.0);
  CHECK(!window.holds_gradients());
  window.begin_micro_batch(2, false, 4);  // the next window
  CHECK(window.begun() == 1);
  CHECK(window.weight() == 0.0);
}

TEST_CASE("accumulation window: added parameters are its own until the next window begins") {
  const auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
  const at::Tensor added = torch::ones({1});
  AccumulationWindow window(Models{model});
  window.begin_micro_batch(/*capacity=*/2, /*last_of_data=*/false, /*rows=*/4);
  CHECK(!window.has_parameter(added));
  window.add_parameters({added});
  window.add_parameters({added});
  CHECK(window.has_parameter(added));
  CHECK(window.parameters().size() == 3);
  window.begin_micro_batch(2, false, 4);
  CHECK(window.has_one_of({added}));
  window.close();
  window.begin_micro_batch(2, false, 4);
  CHECK(!window.has_one_of({added}));
  CHECK(window.has_one_of(model->parameters()));
}

TEST_CASE("accumulation window: it reports its models and whether one was destroyed") {
  auto model = std::make_shared<torch::nn::LinearImpl>(2, 1);
  const auto other = std::make_shared<torch::nn::LinearImpl>(2, 1);
  AccumulationWindow window(Models{model});
  CHECK(window.has_same_models({model}));
  CHECK(!window.has_same_models({model, other}));
  CHECK(window.has_one_of(model->parameters()));
  CHECK(!window.has_one_of(other->parameters()));
  CHECK(!window.has_destroyed_model());
  model.reset();
  CHECK(window.has_destroyed_model());
}

}  // namespace prepare_accumulation_window_test
