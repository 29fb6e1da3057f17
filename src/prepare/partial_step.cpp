#include "prepare/partial_step.h"

#include <torch/torch.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "hasten/optim/adamw.h"
#include "hasten/optim/stateful_optimizer.h"

namespace hasten {

bool steps_parameters_independently(const torch::optim::Optimizer& optimizer) {
  if (const auto* const own = dynamic_cast<const StatefulOptimizer*>(&optimizer))
    return own->steps_parameters_independently();
  // Compares exact types, because a derived class may do something else.
  const std::type_info& type = typeid(optimizer);
  using namespace torch::optim;
  return type == typeid(hasten::AdamW) || type == typeid(torch::optim::AdamW) ||
         type == typeid(Adam) || type == typeid(SGD) || type == typeid(RMSprop) ||
         type == typeid(Adagrad);
}

bool PartialStep::has_places_of(torch::optim::Optimizer& optimizer,
                                const at::Tensor& parameter) const {
  const auto found = places_.find(parameter.unsafeGetTensorImpl());
  if (found == places_.end() || empty_.size() != optimizer.param_groups().size()) return false;
  return std::all_of(found->second.begin(), found->second.end(), [&](const Place& place) {
    const std::vector<at::Tensor>& now = optimizer.param_groups()[place.group].params();
    return now.size() == empty_[place.group].size() && now[place.index].is_same(parameter);
  });
}

void PartialStep::find_places(torch::optim::Optimizer& optimizer) {
  places_.clear();
  empty_.assign(optimizer.param_groups().size(), {});
  for (std::size_t group = 0; group < empty_.size(); ++group) {
    for (const at::Tensor& parameter : optimizer.param_groups()[group].params()) {
      std::vector<Place>& places = places_[parameter.unsafeGetTensorImpl()];
      // A parameter that is listed twice gets only one empty tensor, so that optimizers still count
      // it once.
      empty_[group].push_back(places.empty()
                                  ? at::empty({0}, parameter.options().requires_grad(false))
                                  : empty_[places[0].group][places[0].index]);
      places.push_back({group, empty_[group].size() - 1});
    }
  }
}

void PartialStep::run(torch::optim::Optimizer& optimizer, const std::vector<at::Tensor>& some,
                      const std::vector<at::Tensor>& replacements) {
  const auto is_known = [&](const at::Tensor& each) { return has_places_of(optimizer, each); };
  if (!std::all_of(some.begin(), some.end(), is_known)) find_places(optimizer);
  auto& groups = optimizer.param_groups();
  // Swaps the lists instead of copying them, because a step makes one call for each parameter.
  const auto exchange = [&] {
    for (std::size_t group = 0; group < empty_.size(); ++group)
      std::swap(groups[group].params(), empty_[group]);
  };
  // Puts the tensors at the places of the parameters, and returns the tensors that were there.
  const auto replace = [&](const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> before;
    for (std::size_t i = 0; i < some.size(); ++i) {
      for (const Place& place : places_.at(some[i].unsafeGetTensorImpl())) {
        at::Tensor& there = groups[place.group].params()[place.index];
        if (before.size() == i) before.push_back(there);
        there = tensors[i];
      }
    }
    return before;
  };
  exchange();
  const std::vector<at::Tensor> before = replace(replacements);
  const auto restore = [&] {
    replace(before);
    exchange();
  };
  try {
    optimizer.step();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

}  // namespace hasten
