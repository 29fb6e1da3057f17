#include "prepare/lstm_autocast.h"

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

#include "hasten/prepare/detail/autocast.h"

using namespace hasten;

namespace lstm_autocast_test {

struct TrainingResult {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;
};

// Returns the loss of an LSTM of two layers in both directions, and the gradients of its weights.
TrainingResult train_lstm(Precision precision) {
  torch::manual_seed(5);
  torch::nn::LSTM lstm(
      torch::nn::LSTMOptions(12, 16).num_layers(2).bidirectional(true).batch_first(true));
  const at::Tensor x = at::randn({3, 7, 12});
  TrainingResult result;
  {
    const AutocastGuard guard(precision, at::kCPU);
    result.loss = std::get<0>(lstm(x)).to(at::kFloat).square().mean();
  }
  result.loss.backward();
  for (const at::Tensor& each : lstm->parameters()) result.gradients.push_back(each.grad());
  return result;
}

void check_near(const TrainingResult& got, const TrainingResult& expected, double tolerance) {
  CHECK(at::allclose(got.loss, expected.loss, tolerance));
  REQUIRE(got.gradients.size() == expected.gradients.size());
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    CAPTURE(i);
    REQUIRE(got.gradients[i].defined());
    const double error = (got.gradients[i] - expected.gradients[i]).norm().item<double>();
    CHECK(error <= tolerance * expected.gradients[i].norm().item<double>());
  }
}

TEST_CASE("lstm: it trains under autocast in both 16-bit types on every CPU") {
  const bool before = at::globalContext().userEnabledMkldnn();
  const TrainingResult expected = train_lstm(Precision::no);
  if (has_lstm_kernel(at::kBFloat16))
    check_near(train_lstm(Precision::bf16), expected, 0.05);  // with oneDNN
  replace_lstm_under_autocast();
  check_near(train_lstm(Precision::bf16), expected, 0.05);
  check_near(train_lstm(Precision::fp16), expected, 0.01);
  CHECK(at::globalContext().userEnabledMkldnn() == before);
}

TEST_CASE("lstm: concurrent calls restore the oneDNN setting") {
  const bool before = at::globalContext().userEnabledMkldnn();
  replace_lstm_under_autocast();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([] {
      torch::nn::LSTM lstm(torch::nn::LSTMOptions(8, 8));
      const torch::NoGradGuard no_grad;
      const AutocastGuard guard(Precision::bf16, at::kCPU);
      for (int call = 0; call < 50; ++call) (void)lstm(at::ones({2, 1, 8}));
    });
  }
  for (std::thread& each : threads) each.join();
  CHECK(at::globalContext().userEnabledMkldnn() == before);
  at::globalContext().setUserEnabledMkldnn(false);
  (void)train_lstm(Precision::bf16);
  CHECK_FALSE(at::globalContext().userEnabledMkldnn());
  at::globalContext().setUserEnabledMkldnn(before);
}

}  // namespace lstm_autocast_test
