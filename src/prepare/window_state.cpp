#include "prepare/window_state.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/formats/safetensors.h"
#include "hasten/optim/gradients.h"
#include "prepare/state_files.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Returns the prefix of the names in model i. The first model has none, so the prefix of another
// one must not be the name of a module in it.
std::string prefix_of_model(const Models& models, std::size_t i) {
  if (i == 0) return "";
  std::string prefix = str("model_", i, '.');
  const auto first = models.front()->named_parameters();
  const auto is_taken = [&] {
    return std::any_of(first.begin(), first.end(),
                       [&](const auto& item) { return starts_with(item.key(), prefix); });
  };
  while (is_taken()) prefix.insert(0, "_");
  return prefix;
}

// Returns every parameter of the prepared models and optimizers, without repetitions.
ParameterNames names_of_all(SavedObjects& saved) {
  ParameterNames names;
  TensorSet known;
  const auto add = [&](const std::string& name, const at::Tensor& parameter) {
    if (known.insert(parameter.unsafeGetTensorImpl()).second) names.emplace(name, parameter);
  };
  const auto models = saved.models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string prefix = prefix_of_model(models, i);
    for (const auto& item : models[i]->named_parameters()) add(prefix + item.key(), item.value());
  }
  const auto optimizers = saved.optimizers();
  for (std::size_t i = 0; i < optimizers.size(); ++i) {
    for (const auto& [name, parameter] : names_of_parameters(optimizers[i]->optimizer(), saved))
      add(str("optimizer_", i, '.', name), parameter);
  }
  return names;
}

[[noreturn]] void throw_bad_window(const fs::path& from, const std::string& got,
                                   const std::string& expected) {
  throw DataError("checkpoint.window",
                  {.what = from.string(),
                   .got = got,
                   .expected = expected,
                   .hint = "prepare the models that it was saved with, in the same order"});
}

Models models_of(const OpenWindow& window, const Models& all) {
  Models models;
  for (const std::int64_t number : window.models)
    models.push_back(all[static_cast<std::size_t>(number)]);
  return models;
}

void check_window(const OpenWindow& window, const Models& all, const fs::path& from) {
  const auto count = static_cast<std::int64_t>(all.size());
  if (window.models.empty())
    throw_bad_window(from, "an accumulation window of no model", "a model");
  for (const std::int64_t number : window.models) {
    if (number >= 0 && number < count) continue;
    throw_bad_window(from, str("an accumulation window of model ", number),
                     str("a number below ", count, ", the prepared models"));
  }
  const bool is_open =
      !window.awaits_step && window.micro_batches > 0 && window.micro_batches < window.capacity;
  const bool has_counts = window.backward_passes >= 0 &&
                          window.backward_passes <= window.micro_batches && window.rows >= 0 &&
                          std::isfinite(window.weight) && window.weight >= 0;
  if (is_open && has_counts) return;
  throw_bad_window(from,
                   str("an accumulation window of ", window.micro_batches, " of ", window.capacity,
                       " micro-batches, with ", window.backward_passes,
                       " backward passes of weight ", window.weight),
                   "a window that waits for more micro-batches");
}

}  // namespace

ParameterNames names_of_parameters(const torch::optim::Optimizer& optimizer, SavedObjects& saved) {
  std::map<const void*, std::string> of_models;
  const auto models = saved.models();
  for (std::size_t i = 0; i < models.size(); ++i) {
    const std::string prefix = prefix_of_model(models, i);
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

OpenWindows open_windows_of(AcceleratorState& state) {
  OpenWindows own;
  const Models models = state.saved.models();
  for (const auto& window : state.accumulation.open_windows()) {
    const AccumulationWindow::Counts& counts = window->counts();
    OpenWindow& open = own.windows.emplace_back();
    for (std::size_t i = 0; i < models.size(); ++i) {
      if (window->has_model(models[i].get())) open.models.push_back(static_cast<std::int64_t>(i));
    }
    open.micro_batches = counts.begun;
    open.capacity = state.accumulation.steps();
    open.backward_passes = counts.batches;
    open.rows = counts.rows;
    open.weight = counts.weight;
    open.awaits_step = window->awaits_step();
  }
  if (!own.empty()) own.gradients = gradient_tensors(names_of_all(state.saved));
  if (state.scaling) own.loss_scale = state.scaling->value();
  return own;
}

void check_windows_resumable(const OpenWindows& open, const char* call) {
  if (std::none_of(open.windows.begin(), open.windows.end(),
                   [](const OpenWindow& window) { return window.awaits_step; }))
    return;
  throw UsageError("checkpoint.open-window",
                   {.what = call,
                    .got = "a call in the last micro-batch of an accumulation window, before its "
                           "optimizer step",
                    .expected = "a call after optimizer.step()",
                    .hint = "save at the end of the loop's body: a run that resumes begins with "
                            "the next micro-batch. If an optimizer that is not prepared has made "
                            "the step, call accelerator.mark_gradients_used() after it"});
}

Json json_of(const std::vector<OpenWindow>& windows) {
  Json all = Json::array();
  for (const OpenWindow& window : windows) all.push_back(window_to_json(window));
  return all;
}

OpenWindows read_windows(AcceleratorState& state, const Json& of_ranks, const fs::path& folder) {
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
  OpenWindows own;
  for (const Json& window : of_ranks.at(rank)) own.windows.push_back(window_from_json(window));
  if (own.empty()) return own;
  const fs::path file = folder / gradients_file(state.group.rank());
  own.gradients = load_safetensors(file);
  check_windows(state, own, file);
  return own;
}

void check_windows(AcceleratorState& state, const OpenWindows& saved, const fs::path& from) {
  const Models models = state.saved.models();
  for (const OpenWindow& window : saved.windows) check_window(window, models, from);
  if (!std::isfinite(saved.loss_scale) || saved.loss_scale <= 0)
    throw_bad_window(from, str("the loss scale ", saved.loss_scale), "a positive number");
  check_gradients(names_of_all(state.saved), saved.gradients, from);
}

void restore_windows(AcceleratorState& state, const OpenWindows& saved) {
  state.drop_windows();
  const ParameterNames names = names_of_all(state.saved);
  restore_gradients(names, saved.gradients);
  std::vector<at::Tensor> parameters;
  for (const auto& [name, parameter] : names) parameters.push_back(parameter);
  const double now = state.scaling ? state.scaling->value() : 1;
  scale_gradients_(parameters, now / saved.loss_scale);
  state.gradients.mark_cleared(parameters);
  const Models models = state.saved.models();
  for (const OpenWindow& window : saved.windows) {
    state.accumulation.add_incomplete_window(models_of(window, models),
                                             {.begun = window.micro_batches,
                                              .batches = window.backward_passes,
                                              .rows = window.rows,
                                              .weight = window.weight});
  }
}

}  // namespace hasten
