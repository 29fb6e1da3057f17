#include "prepare/window_state.h"

#include <algorithm>
#include <map>

#include "checkpoint/gradient_state.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/gradients.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Every parameter of the prepared models and optimizers, each once.
ParameterNames names_of_all(SavedObjects& saved) {
  ParameterNames names;
  TensorSet known;
  const auto add = [&](const std::string& name, const at::Tensor& parameter) {
    if (known.insert(parameter.unsafeGetTensorImpl()).second) names.emplace(name, parameter);
  };
  const auto models = saved.models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string prefix = i == 0 ? "" : str("model_", i, '.');
    for (const auto& item : models[i]->named_parameters()) add(prefix + item.key(), item.value());
  }
  const auto optimizers = saved.optimizers();
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    for (const auto& [name, parameter] : names_of_parameters(optimizers[i]->optimizer(), saved))
      add(str("optimizer_", i, '.', name), parameter);
  }
  return names;
}

Models models_of(const Json& window, const Models& all, const fs::path& folder) {
  Models models;
  for (const Json& number : window.at("models")) {
    const auto i = number.get<std::size_t>();
    if (i >= all.size()) {
      throw DataError("checkpoint.window",
                      {.what = folder.string(),
                       .got = str("an accumulation window of model ", i),
                       .expected = str("a number below ", all.size(), ", the prepared models")});
    }
    models.push_back(all[i]);
  }
  return models;
}

AccumulationWindow::Counts counts_of(const Json& window) {
  return {.begun = window.at("micro_batches").get<std::int64_t>(),
          .batches = window.at("backward_passes").get<std::int64_t>(),
          .weight = window.at("weight").get<double>()};
}

}  // namespace

ParameterNames names_of_parameters(const torch::optim::Optimizer& optimizer, SavedObjects& saved) {
  std::map<const void*, std::string> of_models;
  const auto models = saved.models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string prefix = i == 0 ? "" : str("model_", i, '.');
    for (const auto& item : models[i]->named_parameters())
      of_models.emplace(item.value().unsafeGetTensorImpl(), prefix + item.key());
  }
  ParameterNames names;
  const auto& groups = optimizer.param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const auto& parameters = groups[group].params();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto known = of_models.find(parameters[i].unsafeGetTensorImpl());
      names[known != of_models.end() ? known->second : str("group.", group, ".parameter.", i)] =
          parameters[i];
    }
  }
  return names;
}

std::string gradients_file(std::int64_t rank) { return str("gradients_", rank, ".safetensors"); }

WindowState window_state_of(AcceleratorState& state) {
  if (state.accumulation.has_unclosed_window()) {
    throw UsageError("checkpoint.open-window",
                     {.what = "save_state()",
                      .got = "a call in the last micro-batch of an accumulation window, before its "
                             "optimizer step",
                      .expected = "a call after optimizer.step()",
                      .hint = "save at the end of the loop's body: a run that resumes begins with "
                              "the next micro-batch"});
  }
  const auto incomplete = state.accumulation.incomplete_windows();
  if (state.elastic && !incomplete.empty()) {
    throw UsageError("checkpoint.open-window",
                     {.what = "save_state() with elastic_ranks",
                      .got = "a call inside an accumulation window",
                      .expected = "a call after optimizer.step() has made a step",
                      .hint = "save if accelerator.sync_gradients() is true: another number of "
                              "processes divides the window differently"});
  }
  WindowState own;
  const Models models = state.saved.models();
  for (const auto& window : incomplete) {
    Json numbers = Json::array();
    for (std::size_t i = 0; i < models.size(); ++i) {
      if (window->has_model(models[i].get())) numbers.push_back(i);
    }
    const AccumulationWindow::Counts& counts = window->counts();
    own.windows.push_back({{"models", std::move(numbers)},
                           {"micro_batches", counts.begun},
                           {"backward_passes", counts.batches},
                           {"weight", counts.weight}});
  }
  if (own.is_open()) own.gradients = gradient_tensors(names_of_all(state.saved));
  return own;
}

WindowState read_window_state(AcceleratorState& state, const Json& of_ranks,
                              const fs::path& folder) {
  const bool was_open = std::any_of(of_ranks.begin(), of_ranks.end(),
                                    [](const Json& windows) { return !windows.empty(); });
  if (!was_open) return {};
  const auto rank = static_cast<std::size_t>(state.group.rank());
  if (std::ssize(of_ranks) != state.group.size()) {
    throw DataError("checkpoint.window",
                    {.what = folder.string() + ", which was saved inside an accumulation window",
                     .got = str(state.group.size(), " processes"),
                     .expected = str(of_ranks.size(), ", each of which has gradients of its own"),
                     .hint = "resume with as many processes, or from a checkpoint that was saved "
                             "after an optimizer step"});
  }
  WindowState own{.windows = of_ranks.at(rank), .gradients = {}};
  if (!own.is_open()) return own;
  for (const Json& window : own.windows) {
    static_cast<void>(models_of(window, state.saved.models(), folder));
    static_cast<void>(counts_of(window));
  }
  const fs::path file = folder / gradients_file(state.group.rank());
  own.gradients = load_safetensors(file);
  check_gradients(names_of_all(state.saved), own.gradients, file);
  return own;
}

void restore_window_state(AcceleratorState& state, const WindowState& saved,
                          const std::optional<LossScalePosition>& scale) {
  state.drop_windows();
  const ParameterNames names = names_of_all(state.saved);
  restore_gradients(names, saved.gradients);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : names) parameters.push_back(parameter);
  const double before = scale ? scale->scale : 1, now = state.scaling ? state.scaling->value() : 1;
  scale_gradients_(parameters, now / before);
  state.gradients.mark_cleared(parameters);
  for (const Json& window : saved.windows)
    state.accumulation.add_incomplete_window(models_of(window, state.saved.models(), {}),
                                             counts_of(window));
}

}  // namespace hasten
