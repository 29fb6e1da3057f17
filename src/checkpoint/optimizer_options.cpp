#include "checkpoint/optimizer_options.h"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>

#include "base/json_number.h"
#include "base/parse_number.h"
#include "checkpoint/optimizer_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {
namespace {

namespace optim = torch::optim;
using OptionsJson = nlohmann::json;

OptionsJson json_of_value(double value) { return json_of_number<OptionsJson>(value); }
template <class Value>
OptionsJson json_of_value(const Value& value) {
  return value;
}
template <class Value>
OptionsJson json_of_value(const std::optional<Value>& value) {
  return value ? json_of_value(*value) : OptionsJson();
}

void read_value(const OptionsJson& json, double& value) {
  const std::optional<double> number = real_number_in(json);
  if (!number) throw JsonError("the value " + json.dump() + " instead of a number");
  value = *number;
}
// nlohmann's conversion of a large number is undefined.
void read_value(const OptionsJson& json, std::int64_t& value) {
  const std::optional<std::int64_t> number = whole_number_in(json);
  if (!number) throw JsonError("a value that is not a whole number of 64 bits");
  value = *number;
}
template <class Value>
void read_value(const OptionsJson& json, Value& value) {
  value = json.get<Value>();
}
template <class Value>
void read_value(const OptionsJson& json, std::optional<Value>& value) {
  value.reset();
  if (!json.is_null()) read_value(json, value.emplace());
}

// The options of hasten::AdamW for bfloat16; see is_added_option().
template <class Option>
void visit_rounding(AdamWOptions& options, Option& option) {
  std::string type = options.state_dtype() == at::kBFloat16 ? "bfloat16" : "float32";
  bool is_stochastic = options.stochastic_rounding();
  std::int64_t seed = options.rounding_seed();
  option.added_option("state_dtype", type);
  option.added_option("stochastic_rounding", is_stochastic);
  option.added_option("rounding_seed", seed);
  options.state_dtype(type == "bfloat16" ? at::kBFloat16 : at::kFloat)
      .stochastic_rounding(is_stochastic)
      .rounding_seed(seed);
}

// Passes every option of a group to `option(name, value)`. It needs the overloads of OptionVisitor,
// and overloads for a pair, an optional text and an optional whole number.
template <class Option>
void visit_group(optim::OptimizerOptions& options, Option& option) {
  const auto is = [&]<class Options>(Options*& typed) {
    return (typed = dynamic_cast<Options*>(&options)) != nullptr;
  };
  const auto visit_adam = [&](auto& adam) {
    option("lr", adam.lr());
    option("betas", adam.betas());
    option("eps", adam.eps());
    option("weight_decay", adam.weight_decay());
    option("amsgrad", adam.amsgrad());
  };
  optim::AdamOptions* adam = nullptr;
  optim::AdamWOptions* adamw = nullptr;
  optim::SGDOptions* sgd = nullptr;
  optim::RMSpropOptions* rmsprop = nullptr;
  optim::AdagradOptions* adagrad = nullptr;
  optim::LBFGSOptions* lbfgs = nullptr;
  ParamGroupOptions* own = nullptr;
  if (is(adam)) {
    visit_adam(*adam);
  } else if (is(adamw)) {
    visit_adam(*adamw);
    if (auto* const of_hasten = dynamic_cast<AdamWOptions*>(adamw))
      visit_rounding(*of_hasten, option);
  } else if (is(sgd)) {
    option("lr", sgd->lr());
    option("momentum", sgd->momentum());
    option("dampening", sgd->dampening());
    option("weight_decay", sgd->weight_decay());
    option("nesterov", sgd->nesterov());
  } else if (is(rmsprop)) {
    option("lr", rmsprop->lr());
    option("alpha", rmsprop->alpha());
    option("eps", rmsprop->eps());
    option("weight_decay", rmsprop->weight_decay());
    option("momentum", rmsprop->momentum());
    option("centered", rmsprop->centered());
  } else if (is(adagrad)) {
    option("lr", adagrad->lr());
    option("lr_decay", adagrad->lr_decay());
    option("weight_decay", adagrad->weight_decay());
    option("initial_accumulator_value", adagrad->initial_accumulator_value());
    option("eps", adagrad->eps());
  } else if (is(lbfgs)) {
    option("lr", lbfgs->lr());
    option("max_iter", lbfgs->max_iter());
    option("max_eval", lbfgs->max_eval());
    option("tolerance_grad", lbfgs->tolerance_grad());
    option("tolerance_change", lbfgs->tolerance_change());
    option("history_size", lbfgs->history_size());
    option("line_search_fn", lbfgs->line_search_fn());
  } else if (is(own)) {
    own->visit_options(option);
  }
}

// Forwards every overload of OptionVisitor, and the overloads that only LibTorch's options need, to
// `Derived::value(name, value)`.
template <class Derived>
class ForwardingOptionVisitor : public OptionVisitor {
 public:
  using OptionVisitor::operator();
  void operator()(const char* name, double& value) override { self().value(name, value); }
  void operator()(const char* name, std::optional<double>& value) override {
    self().value(name, value);
  }
  void operator()(const char* name, std::int64_t& value) override { self().value(name, value); }
  void operator()(const char* name, bool& value) override { self().value(name, value); }
  void operator()(const char* name, std::string& value) override { self().value(name, value); }
  void operator()(const char* name, std::vector<double>& value) override {
    self().value(name, value);
  }
  void operator()(const char* name, std::optional<std::int64_t>& value) {
    self().value(name, value);
  }
  void operator()(const char* name, std::optional<std::string>& value) {
    self().value(name, value);
  }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
};

struct OptionSaver : ForwardingOptionVisitor<OptionSaver> {
  template <class Value>
  void value(const char* name, const Value& option) {
    json[name] = json_of_value(option);
  }
  template <class Value>
  void added_option(const char* name, const Value& option) {
    value(name, option);
  }
  OptionsJson json = OptionsJson::object();
};

struct OptionLoader : ForwardingOptionVisitor<OptionLoader> {
  explicit OptionLoader(const OptionsJson& saved) : json(saved) {}
  template <class Value>
  void value(const char* name, Value& option) {
    read_value(json.at(name), option);
    ++used;
  }
  template <class Value>
  void added_option(const char* name, Value& option) {
    if (json.contains(name)) value(name, option);
  }
  const OptionsJson& json;
  std::size_t used = 0;
};

// Sets the options of a group. Throws nlohmann's exception if one is missing or has a different
// type.
void set_group(optim::OptimizerOptions& options, const OptionsJson& saved) {
  OptionLoader loader(saved);
  visit_group(options, loader);
}

}  // namespace

bool is_added_option(const std::string& name) {
  return name == "state_dtype" || name == "stochastic_rounding" || name == "rounding_seed";
}

OptionsJson options_of(optim::Optimizer& optimizer) {
  static_cast<void>(name_of_optimizer(optimizer));  // throws for an unknown optimizer
  OptionsJson groups = OptionsJson::array();
  for (auto& group : optimizer.param_groups()) {
    OptionSaver saver;
    visit_group(group.options(), saver);
    groups.push_back(std::move(saver.json));
  }
  return groups;
}

void check_options(optim::Optimizer& optimizer, const OptionsJson& saved, const std::string& file) {
  const auto& groups = optimizer.param_groups();
  const auto fail = [&](std::string got, std::string expected) {
    throw DataError("checkpoint.optimizer-options",
                    {.what = file + ", the optimizer's options",
                     .got = std::move(got),
                     .expected = std::move(expected),
                     .hint = "create the optimizer as in the program that saved the checkpoint"});
  };
  if (!saved.is_array() || saved.size() != groups.size())
    fail(saved.is_array() ? str(saved.size(), " groups of parameters") : "no list of groups",
         str(groups.size()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto trial = groups[i].options().clone();
    try {
      OptionLoader loader(saved[i]);
      visit_group(*trial, loader);
      if (loader.used != saved[i].size()) fail("options that the optimizer lacks", "its options");
    } catch (const std::exception& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      fail(error.what(), "the options of " + name_of_optimizer(optimizer));
    }
  }
}

void set_options(optim::Optimizer& optimizer, const OptionsJson& saved) {
  auto& groups = optimizer.param_groups();
  for (std::size_t i = 0; i < groups.size(); ++i) set_group(groups[i].options(), saved.at(i));
}

}  // namespace hasten
