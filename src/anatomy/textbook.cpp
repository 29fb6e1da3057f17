#include "anatomy/textbook.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <typeinfo>

#include "hasten/base/text.h"
#include "hasten/optim/adamw.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten::anatomy {
namespace {

constexpr double kFloatBytes = 4;

// A state that an option of a parameter group adds. `name` appears in the optimizer's name, as in
// "SGD with momentum".
struct OptionalState {
  std::string name;
  bool on = false;
};

// How many numbers a group keeps for each parameter: always, and for each option that is on.
struct StateGroup {
  double fixed = 0;
  std::vector<OptionalState> extras;
  double bytes = kFloatBytes;  // the size of one number
};

template <class Options>
StateGroup adam(const Options& options) {
  return {.fixed = 2, .extras = {{"amsgrad", options.amsgrad()}}};
}
StateGroup adamw(const torch::optim::AdamWOptions& options) {
  StateGroup group = adam(options);
  if (const auto* const own = dynamic_cast<const hasten::AdamWOptions*>(&options))
    group.bytes = static_cast<double>(c10::elementSize(own->state_dtype()));
  return group;
}
StateGroup sgd(const torch::optim::SGDOptions& options) {
  return {.fixed = 0, .extras = {{"momentum", options.momentum() != 0}}};
}
StateGroup rmsprop(const torch::optim::RMSpropOptions& options) {
  return {.fixed = 1,
          .extras = {{"momentum", options.momentum() > 0}, {"centering", options.centered()}}};
}
StateGroup adagrad(const torch::optim::AdagradOptions&) { return {.fixed = 1}; }

// Returns the mean over the parameters, because groups may have different options.
template <class Options, class GroupOf>
TextbookStates mean_states(const std::string& name, const torch::optim::Optimizer& optimizer,
                           GroupOf group_of) {
  double states = 0, parameters = 0;
  std::vector<std::string> on;
  for (const torch::optim::OptimizerParamGroup& each : optimizer.param_groups()) {
    const torch::optim::OptimizerOptions& options =
        each.has_options() ? each.options() : optimizer.defaults();
    const StateGroup group = group_of(static_cast<const Options&>(options));
    double numbers = 0;
    for (const at::Tensor& parameter : each.params())
      numbers += static_cast<double>(parameter.numel());
    double kept = group.fixed;
    for (const OptionalState& extra : group.extras) {
      if (!extra.on) continue;
      kept += 1;
      if (std::find(on.begin(), on.end(), extra.name) == on.end()) on.push_back(extra.name);
    }
    states += kept * group.bytes * numbers;
    parameters += numbers;
  }
  return {.optimizer = on.empty() ? name : name + " with " + join(on, ", "),
          .bytes = parameters > 0 ? states / parameters : 0};
}

}  // namespace

std::optional<TextbookStates> textbook_states(const torch::optim::Optimizer& optimizer) {
  using namespace torch::optim;
  // Compares exact types, because a derived class may keep different states.
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(hasten::AdamW) || type == typeid(torch::optim::AdamW))
    return mean_states<torch::optim::AdamWOptions>("AdamW", optimizer, adamw);
  if (type == typeid(Adam)) return mean_states<AdamOptions>("Adam", optimizer, adam<AdamOptions>);
  if (type == typeid(SGD)) return mean_states<SGDOptions>("SGD", optimizer, sgd);
  if (type == typeid(RMSprop)) return mean_states<RMSpropOptions>("RMSprop", optimizer, rmsprop);
  if (type == typeid(Adagrad)) return mean_states<AdagradOptions>("Adagrad", optimizer, adagrad);
  if (const auto* own = dynamic_cast<const StatefulOptimizer*>(&optimizer)) {
    return mean_states<ParamGroupOptions>(
        own->name(), optimizer, [](const ParamGroupOptions& options) {
          return StateGroup{.fixed = options.bytes_per_parameter() / kFloatBytes};
        });
  }
  return {};
}

namespace {

// True if there are gradients or optimizer states, or if a backward pass ran. Inference alone has
// none of these.
bool has_trained(const Memory& memory) {
  const auto backward = static_cast<std::size_t>(Phase::backward);
  return bytes_of(memory.at_peak, Component::gradients) > 0 ||
         bytes_of(memory.at_peak, Component::optimizer_states) > 0 ||
         (backward < memory.peak_in_phase.size() && memory.peak_in_phase[backward] > 0);
}

std::string in_bytes(double bytes) { return significant(bytes, 3) + " B"; }

Textbook textbook_of_states(const Memory& memory) {
  std::vector<TextbookStates> different;
  for (const TextbookStates& each : memory.textbook_states) {
    if (std::find(different.begin(), different.end(), each) == different.end())
      different.push_back(each);
  }
  if (different.empty()) return {};
  Textbook out;
  std::vector<std::string> texts;
  for (const TextbookStates& each : different)
    texts.push_back(in_bytes(each.bytes) + " (" + each.optimizer + ")");
  if (memory.unknown_optimizers > 0) return {.bytes = {}, .text = join(texts, ", ")};
  const bool agree =
      std::all_of(different.begin(), different.end(),
                  [&](const TextbookStates& each) { return each.bytes == different[0].bytes; });
  if (agree) out.bytes = different[0].bytes;
  out.text = join(texts, ", ");
  return out;
}

}  // namespace

Textbook textbook(const Memory& memory, Component component) {
  if (component == Component::model_weights) return {.bytes = kFloatBytes, .text = "4 B (mixed 6)"};
  if (!has_trained(memory)) return {};
  if (component == Component::gradients) return {.bytes = kFloatBytes, .text = "4 B"};
  return component == Component::optimizer_states ? textbook_of_states(memory) : Textbook();
}

}  // namespace hasten::anatomy
