// The textbook's column has the row of the optimizer that ran, and is empty for an unknown
// optimizer.
#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "hasten/accelerator.h"
#include "hasten/anatomy/anatomy.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/optim/adamw.h"

namespace anatomy_textbook_test {

using namespace hasten;
using anatomy::Component;
using anatomy::Memory;
using anatomy::Report;

namespace {

using OptimizerFactory =
    std::function<std::shared_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

// Keeps one number per parameter, which no textbook mentions.
class UnknownOptimizer : public torch::optim::Optimizer {
 public:
  explicit UnknownOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {}
  at::Tensor step(LossClosure closure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& each : param_groups()[0].params()) kept_.push_back(at::zeros_like(each));
    return closure ? closure() : at::Tensor();
  }

 private:
  std::vector<at::Tensor> kept_;
};

// Returns the report of two steps of a layer with the Accelerator.
Report report_of_two_steps(const OptimizerFactory& make, bool steps = true) {
  Accelerator accelerator({.cpu = true});
  torch::nn::Linear net(32, 32);
  const auto raw = make(net->parameters());
  auto anatomy = accelerator.anatomy({.steps = 0});
  auto [model, optimizer] = accelerator.prepare(net, raw);
  for (int i = 0; i < 2; ++i) {
    accelerator.backward(model(at::ones({4, 32})).square().mean());
    if (steps) optimizer.step();
    optimizer.zero_grad();
  }
  return anatomy.report();
}

struct TextbookRow {
  std::string name;
  double bytes;
  OptimizerFactory make;
};

template <class Optimizer, class Options>
OptimizerFactory optimizer_factory(Options options) {
  return [=](std::vector<at::Tensor> parameters) {
    return std::make_shared<Optimizer>(std::move(parameters), options);
  };
}

std::vector<TextbookRow> textbook_rows() {
  using namespace torch::optim;
  return {
      {"SGD", 0, optimizer_factory<SGD>(SGDOptions(0.1))},
      {"SGD with momentum", 4, optimizer_factory<SGD>(SGDOptions(0.1).momentum(0.9))},
      {"AdamW", 8, optimizer_factory<hasten::AdamW>(torch::optim::AdamWOptions(1e-3))},
      {"AdamW", 8, optimizer_factory<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3))},
      {"AdamW with amsgrad", 12,
       optimizer_factory<torch::optim::AdamW>(torch::optim::AdamWOptions(1e-3).amsgrad(true))},
      {"Adam", 8, optimizer_factory<Adam>(AdamOptions(1e-3))},
      {"Adam with amsgrad", 12, optimizer_factory<Adam>(AdamOptions(1e-3).amsgrad(true))},
      {"Adagrad", 4, optimizer_factory<Adagrad>(AdagradOptions(1e-3))},
      {"RMSprop", 4, optimizer_factory<RMSprop>(RMSpropOptions(1e-3))},
      {"RMSprop with momentum", 8, optimizer_factory<RMSprop>(RMSpropOptions(1e-3).momentum(0.9))},
      {"RMSprop with centering", 8,
       optimizer_factory<RMSprop>(RMSpropOptions(1e-3).centered(true))},
      {"RMSprop with momentum, centering", 12,
       optimizer_factory<RMSprop>(RMSpropOptions(1e-3).momentum(0.9).centered(true))},
  };
}

}  // namespace

TEST_CASE("textbook: each optimizer's row appears in the table, in JSON and on the page") {
  constexpr std::int64_t kNumbers = 32 * 32 + 32;
  for (const TextbookRow& row : textbook_rows()) {
    const std::string name = row.name;
    CAPTURE(name);
    const Report report = report_of_two_steps(row.make);
    const anatomy::Textbook states = textbook(report.memory, Component::optimizer_states);
    REQUIRE(states.bytes);
    CHECK(*states.bytes == row.bytes);
    const std::string text = std::to_string(static_cast<int>(row.bytes)) + " B (" + row.name + ")";
    CHECK(states.text == text);
    // The textbook's figure is right except for a few numbers.
    CHECK(std::abs(bytes_of(report.memory.max_bytes, Component::optimizer_states) -
                   static_cast<std::int64_t>(row.bytes) * kNumbers) < 64);
    CHECK(to_text(report).find(text) != std::string::npos);
    const auto json = nlohmann::json::parse(to_json(report))["memory"]["textbook"];
    CHECK(json["optimizer_states"]["bytes"] == row.bytes);
    CHECK(json["optimizer_states"]["text"] == text);
    CHECK(json["gradients"]["bytes"] == 4);
    CHECK(to_html(report).find("\"" + text + "\"") != std::string::npos);
  }
}

TEST_CASE("textbook: there is no figure if none is known or none applies") {
  const auto states = [](const Report& report) {
    return textbook(report.memory, Component::optimizer_states);
  };
  const Report own = report_of_two_steps([](std::vector<at::Tensor> parameters) {
    return std::make_shared<UnknownOptimizer>(std::move(parameters));
  });
  CHECK(bytes_of(own.memory.max_bytes, Component::optimizer_states) > 0);
  CHECK(!states(own).bytes);
  CHECK(states(own).text.empty());
  CHECK(to_text(own).find("AdamW") == std::string::npos);
  CHECK(!nlohmann::json::parse(to_json(own))["memory"]["textbook"].contains("optimizer_states"));
  // Inference has only weights.
  Accelerator accelerator({.cpu = true});
  torch::nn::Linear net(32, 32);
  auto anatomy = accelerator.anatomy({.steps = 0});
  auto [model] = accelerator.prepare(net);
  {
    const torch::NoGradGuard no_grad;
    model(at::ones({4, 32}));
  }
  const Memory memory = anatomy.report().memory;
  CHECK(textbook(memory, Component::model_weights).text == "4 B (mixed 6)");
  CHECK(textbook(memory, Component::gradients).text.empty());
  CHECK(textbook(memory, Component::optimizer_states).text.empty());
}

TEST_CASE("textbook: groups are averaged, and several optimizers have one figure each") {
  using namespace torch::optim;
  const at::Tensor half = at::ones({100}).requires_grad_(), rest = at::ones({300}).requires_grad_();
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{half},
                      std::make_unique<SGDOptions>(SGDOptions(0.1).momentum(0.9)));
  groups.emplace_back(std::vector<at::Tensor>{rest}, std::make_unique<SGDOptions>(0.1));
  SGD sgd(groups, SGDOptions(0.1));
  torch::optim::AdamW adamw(std::vector<at::Tensor>{rest}, torch::optim::AdamWOptions(1e-3));
  const auto after = [&](std::vector<torch::optim::Optimizer*> optimizers) {
    Anatomy anatomy;
    for (torch::optim::Optimizer* each : optimizers) anatomy.watch(*each);
    {
      const PhaseScope phase = anatomy.backward();
      (half.sum() + rest.sum()).backward();
    }
    for (torch::optim::Optimizer* each : optimizers) {
      const PhaseScope phase = anatomy.optimizer();
      each->step();
    }
    return textbook(anatomy.report().memory, Component::optimizer_states);
  };
  CHECK(after({&sgd}).bytes == 1);
  CHECK(after({&sgd}).text == "1 B (SGD with momentum)");
  const anatomy::Textbook both = after({&sgd, &adamw});
  CHECK(!both.bytes);
  CHECK(both.text == "1 B (SGD with momentum), 8 B (AdamW)");
}

TEST_CASE("textbook: a history has no figure per parameter, and still belongs to the optimizer") {
  torch::nn::Linear net(32, 1);
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
  const at::Tensor x = at::rand({16, 32});
  Anatomy anatomy;
  anatomy.watch(*net);
  anatomy.watch(lbfgs);
  {
    const PhaseScope step = anatomy.optimizer();
    lbfgs.step([&] {
      lbfgs.zero_grad();
      at::Tensor loss;
      {
        const PhaseScope phase = anatomy.forward();
        loss = (net(x) - 1).square().mean();
      }
      {
        const PhaseScope phase = anatomy.backward();
        loss.backward();
      }
      return loss;
    });
  }
  anatomy.step();
  const Memory memory = anatomy.report().memory;
  CHECK(!textbook(memory, Component::optimizer_states).bytes);
  // The states have at least the direction, the last gradient, and one old direction and step.
  CHECK(bytes_of(memory.max_bytes, Component::optimizer_states) >= 4 * 33 * 4);
}

namespace {

Report steps_and_more(bool more) {
  torch::nn::Linear net(32, 32);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  Anatomy anatomy({.steps = 0});
  anatomy.watch(*net);
  const auto pass = [&](std::int64_t rows) {
    const at::Tensor x = at::ones({rows, 32});
    anatomy.watch_batch({x});
    const PhaseScope phase = anatomy.forward();
    return net(x).square().mean();
  };
  const auto outside = [&] {
    const at::Tensor weight = at::ones({64, 64});
    for (int i = 0; i < 3; ++i) at::mm(weight, weight);
  };
  if (more) outside();
  for (int i = 0; i < 2; ++i) {
    const at::Tensor loss = pass(4);
    {
      const PhaseScope phase = anatomy.backward();
      loss.backward();
    }
    {
      const PhaseScope phase = anatomy.optimizer();
      sgd.step();
    }
    anatomy.step();
    if (i == 0) sgd.zero_grad();
  }
  if (more) {
    const torch::NoGradGuard no_grad;
    pass(1000);  // an evaluation after the last step
    outside();
  }
  return anatomy.report();
}

}  // namespace

TEST_CASE("textbook: a history from before the recording belongs to the optimizer, too") {
  torch::nn::Linear net(32, 1);
  torch::optim::LBFGS lbfgs(net->parameters(), torch::optim::LBFGSOptions(0.1).max_iter(4));
  const at::Tensor x = at::rand({16, 32});
  lbfgs.step([&] {
    lbfgs.zero_grad();
    const at::Tensor loss = (net(x) - 1).square().mean();
    loss.backward();
    return loss;
  });
  Anatomy anatomy;
  anatomy.watch(*net);
  anatomy.watch(lbfgs);
  {
    const PhaseScope phase = anatomy.forward();
    net(x);
  }
  anatomy.step();
  CHECK(bytes_of(anatomy.report().memory.at_peak, Component::optimizer_states) >= 2 * 33 * 4);
}

TEST_CASE("anatomy: rates use only the steps, not the work before and after") {
  Report plain = steps_and_more(false), with_more = steps_and_more(true);
  CHECK(plain.samples == 8);
  CHECK(with_more.samples == 8);
  for (Report* each : {&plain, &with_more}) {
    each->seconds = 1;
    each->roofs = {.flops_per_second = 1e6, .bytes_per_second = 1e6};
  }
  CHECK(model_flops_utilization(plain) > 0);
  CHECK(model_flops_utilization(with_more) == doctest::Approx(model_flops_utilization(plain)));
  CHECK(min_step_seconds(plain) > 0);
  CHECK(min_step_seconds(with_more) == doctest::Approx(min_step_seconds(plain)));
  // The tables of operations show everything that was recorded.
  CHECK(total_of(with_more, anatomy::Phase::forward).flops >
        total_of(plain, anatomy::Phase::forward).flops);
}

TEST_CASE("anatomy: parameters count once, however often they are owned and watched") {
  const auto shared = std::make_shared<torch::nn::LinearImpl>(32, 32);
  torch::nn::Sequential net;
  net->push_back("first", torch::nn::Linear(shared));
  net->push_back("second", torch::nn::BatchNorm1d(32));
  torch::nn::Sequential again;
  again->push_back("third", torch::nn::Linear(shared));
  constexpr std::int64_t kNumbers = 32 * 32 + 32 + 2 * 32;
  Anatomy anatomy({.steps = 0});
  anatomy.watch(*net);
  anatomy.watch(*net);
  anatomy.watch(*again);
  const Memory memory = anatomy.report().memory;
  CHECK(memory.parameters == kNumbers);
  CHECK(memory.trained_parameters == kNumbers);
}

TEST_CASE("anatomy: parameters that share one storage each count") {
  struct Flat : torch::nn::Module {
    Flat() {
      const at::Tensor all = at::zeros({100});
      register_parameter("first", all.slice(0, 0, 40));
      register_parameter("second", all.slice(0, 40, 100), false);
    }
  };
  const auto flat = std::make_shared<Flat>();
  Anatomy anatomy({.steps = 0});
  anatomy.watch(*flat);
  const Memory memory = anatomy.report().memory;
  CHECK(memory.parameters == 100);
  CHECK(memory.trained_parameters == 40);
}

}  // namespace anatomy_textbook_test
