// Compares each schedule with transformers' schedule for 1,000 steps (generate_schedules.py).
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "hasten/formats/safetensors.h"
#include "hasten/optim/metric_scheduler.h"
#include "hasten/optim/scheduler.h"

namespace oracle_schedules_test {

using namespace hasten;

namespace {

using Json = nlohmann::json;

Kwargs kwargs_of(const Json& object) {
  Kwargs kwargs;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) {
      kwargs.set(key, value.get<std::string>());
    } else if (value.is_boolean()) {
      kwargs.set(key, value.get<bool>());
    } else {
      kwargs.set(key, value.get<double>());
    }
  }
  return kwargs;
}

torch::optim::SGD two_groups(const std::vector<double>& rates) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double lr : rates) {
    groups.emplace_back(std::vector<at::Tensor>{at::zeros({1})},
                        std::make_unique<torch::optim::SGDOptions>(lr));
  }
  return torch::optim::SGD(groups, torch::optim::SGDOptions(0.01));
}

void require_lrs(const torch::optim::Optimizer& optimizer, const at::Tensor& expected) {
  for (std::int64_t i = 0; i < 2; ++i) {
    const double lr = optimizer.param_groups()[static_cast<std::size_t>(i)].options().get_lr();
    REQUIRE(lr == doctest::Approx(expected[i].item<double>()).epsilon(1e-12));
  }
}

}  // namespace

TEST_CASE("schedules: 1,000 learning rates equal those of transformers") {
  const std::string folder = std::string(HASTEN_TEST_DATA) + "/oracle/data/schedules/";
  std::ifstream file(folder + "cases.json");
  const Json cases = Json::parse(file).at("cases");
  const TensorDict expected = load_safetensors(folder + "lrs.safetensors");
  const at::Tensor metric = expected.at("metric");
  REQUIRE(cases.size() == 16);
  for (const auto& [name, test] : cases.items()) {
    CAPTURE(name);
    const auto type = from_name<SchedulerType>(test.at("type").get<std::string>()).value();
    const Kwargs kwargs = kwargs_of(test.at("kwargs"));
    torch::optim::SGD optimizer = two_groups(test.at("rates").get<std::vector<double>>());
    if (!follows_metric(type)) {
      const auto scheduler = get_scheduler(type, optimizer,
                                           {.num_warmup_steps = test.at("warmup"),
                                            .num_training_steps = test.at("total"),
                                            .kwargs = kwargs});
      for (std::int64_t step = 0; step < metric.numel(); ++step) {
        require_lrs(optimizer, expected.at(name)[step]);
        scheduler->step();
      }
      continue;
    }
    auto scheduler = get_metric_scheduler(type, optimizer, kwargs);
    for (std::int64_t step = 0; step < metric.numel(); ++step) {
      require_lrs(optimizer, expected.at(name)[step]);
      scheduler->step(metric[step].item<double>());
      if (step % 101 == 100) {  // a resumed run continues with the same rates
        const auto state = scheduler->state();
        scheduler = get_metric_scheduler(type, optimizer, kwargs);
        scheduler->set_state(state);
      }
    }
  }
}

}  // namespace oracle_schedules_test
