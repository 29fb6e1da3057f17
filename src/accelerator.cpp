#include "hasten/accelerator.h"

#include <torch/torch.h>

#include <iostream>

#include "attach/attach.h"
#include "base/unfinished_files.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/models/training_traits.h"
#include "hasten/process/once.h"
#include "prepare/accelerator_listener.h"
#include "prepare/accelerator_setup.h"
#include "prepare/accelerator_state.h"
#include "prepare/gather_uneven_rows.h"
#include "prepare/metrics.h"
#include "prepare/registered_objects.h"
#include "prepare/state_checkpoint.h"
#include "prepare/window_state.h"
#include "track/tracker_set.h"

namespace hasten {
namespace {

void check_project(const ProjectConfiguration& project) {
  if (project.total_limit && *project.total_limit < 1) {
    throw ConfigError("checkpoint.total-limit", {.what = "project_config.total_limit",
                                                 .got = str(*project.total_limit),
                                                 .expected = "at least 1, or unset"});
  }
  if (project.keep_every < 0) {
    throw ConfigError("checkpoint.keep-every", {.what = "project_config.keep_every",
                                                .got = str(project.keep_every),
                                                .expected = "at least 0",
                                                .hint = "pass 0 to let all of them be deleted"});
  }
  if (project.automatic_checkpoint_naming && project.project_dir.empty()) {
    throw ConfigError("checkpoint.project-dir",
                      {.what = "project_config.automatic_checkpoint_naming",
                       .got = "no project_dir",
                       .expected = "the folder of the project"});
  }
}

// Stores the function and returns the hook that removes it again.
CheckpointHook added_hook(std::vector<std::shared_ptr<CheckpointFunction>>& functions,
                          CheckpointFunction function) {
  functions.push_back(std::make_shared<CheckpointFunction>(std::move(function)));
  return CheckpointHook(functions.back());
}

// Returns the tensors of a batch for its observers, which take the first dimension of the first one
// as the number of rows. Packed rows have one bound more than rows.
std::vector<at::Tensor> observed_tensors(const TensorDict& batch) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : batch) {
    if (name == kPackedRowsOnHost) continue;
    const bool has_bounds = name == kPackedRows && tensor.dim() == 1 && tensor.size(0) > 0;
    tensors.push_back(has_bounds ? tensor.narrow(0, 1, tensor.size(0) - 1) : tensor);
  }
  return tensors;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options) {
  const bool is_main = this_worker().rank == 0;
  // Throws before the processes form their group.
  trackers_ = std::make_shared<TrackerSet>(options.log_with, options.logging_dir, is_main);
  check_project(options.project_config);
  if (hasten_on_accelerator_begin != nullptr) hasten_on_accelerator_begin();
  state_ = make_accelerator_state(options, DryRun::active());
  state_->saved.trackers = trackers_;
  project_ = options.project_config;
  // Programs ask whether their saved state exists before they call load_state().
  if (!project_.project_dir.empty())
    restore_replaced_folders(project_.project_dir, [](const std::string&) { return true; });
  const std::shared_ptr<StepObservers> observers(state_, &state_->observers);
  notify_accelerator_listener(*observers);
  if (hasten_on_accelerator_constructed != nullptr) hasten_on_accelerator_constructed(observers);
}

DeferredScalar Accelerator::clip_grad_norm_(const std::vector<at::Tensor>& parameters,
                                            double max_norm, double norm_type) {
  if (state_->stepping.in_backward) throw_needs_gradients("clip_grad_norm_()");
  if (!state_->close_due_windows(parameters)) return 0.0;
  state_->unscale(parameters);
  return hasten::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  if (state_->stepping.in_backward) throw_needs_gradients("clip_grad_value_()");
  if (!state_->close_due_windows(parameters)) return;
  state_->unscale(parameters);
  hasten::clip_grad_value_(parameters, clip_value);
}

void Accelerator::unscale_gradients() {
  for (const auto& optimizer : state_->saved.optimizers()) {
    const std::vector<at::Tensor> parameters = optimizer->parameters();
    if (state_->close_due_windows(parameters)) state_->unscale(parameters);
  }
}

bool Accelerator::optimizer_step_was_skipped() const { return state_->step_was_skipped(); }

void Accelerator::backward(const at::Tensor& loss, const BackwardOptions& options) {
  state_->backward({.loss = loss,
                    .inputs = options.inputs,
                    .retain_graph = options.retain_graph,
                    .create_graph = options.create_graph});
}

void Accelerator::backward(const at::Tensor& loss, double items, const BackwardOptions& options) {
  if (items < 0) return backward(loss, options);
  state_->backward({.loss = loss,
                    .weight = items,
                    .by_items = true,
                    .inputs = options.inputs,
                    .retain_graph = options.retain_graph,
                    .create_graph = options.create_graph});
}

void Accelerator::init_trackers(const std::string& project,
                                const TrackedConfiguration& configuration) {
  require_all_have_data("init_trackers");
  // The other processes start trackers that store nothing and cannot fail.
  if (!is_main_process()) trackers_->start(project, configuration);
  once(group(), is_main_process(), [&] { trackers_->start(project, configuration); });
}

void Accelerator::log(const TrackedScalars& values, std::int64_t step) {
  trackers_->log(values, step);
}

Tracker& Accelerator::get_tracker(const std::string& name) { return trackers_->get(name); }

void Accelerator::end_training() { trackers_->finish(); }

std::filesystem::path Accelerator::save_state(const std::filesystem::path& folder,
                                              const SaveStateOptions& options) {
  return save_state_checkpoint(*state_, project_, folder, options);
}

void Accelerator::wait_for_save() { state_->background_save.wait(); }

bool Accelerator::load_state(const std::filesystem::path& folder) {
  return load_state_checkpoint(*state_, project_, folder);
}

void Accelerator::add_object(std::shared_ptr<SavedObject> object) {
  state_->saved.objects.push_back(std::move(object));
}

CheckpointHook Accelerator::register_save_state_pre_hook(CheckpointFunction function) {
  return added_hook(state_->saved.before_save, std::move(function));
}

CheckpointHook Accelerator::register_load_state_pre_hook(CheckpointFunction function) {
  return added_hook(state_->saved.before_load, std::move(function));
}

void Accelerator::call_save_hooks(const std::filesystem::path& folder) const {
  call_with(state_->saved.before_save, folder);
}

std::map<std::string, TensorDict> Accelerator::registered_states() const {
  return object_states(state_->saved);
}

void Accelerator::call_load_hooks(const std::filesystem::path& folder) const {
  check_object_count(state_->saved, folder);
  call_with(state_->saved.before_load, folder);
}

void Accelerator::restore_registered_states(const std::filesystem::path& folder) const {
  load_objects(state_->saved, folder);
}

void Accelerator::restore_registered_states(const std::map<std::string, TensorDict>& states) const {
  restore_objects(state_->saved, states);
}

void Accelerator::save_module(const torch::nn::Module& module, const std::filesystem::path& folder,
                              const SaveModuleOptions& options) const {
  require_all_have_data("save_model");
  once(group(), is_main_process(), [&] { save_weights(module, folder, options); });
}

IncompatibleNames Accelerator::load_module(torch::nn::Module& module,
                                           const std::filesystem::path& folder,
                                           const LoadModuleOptions& options) const {
  require_all_have_data("load_model");
  IncompatibleNames names;
  once(group(), true, [&] { names = load_weights(module, folder, options); });
  return names;
}

bool Accelerator::sync_gradients() const { return state_->accumulation.sync_gradients(); }

double Accelerator::elastic_loss() const {
  if (state_->elastic) return state_->elastic->loss();
  throw UsageError("prepare.elastic-loop",
                   {.what = "elastic_loss()",
                    .got = "an Accelerator without elastic_ranks",
                    .expected = "one with AcceleratorOptions::elastic_ranks",
                    .hint = "set elastic_ranks, or use the loss that was given to backward()"});
}

double Accelerator::elastic_sum(const std::vector<double>& of_own_ranks) const {
  const std::int64_t expected = state_->elastic ? state_->elastic->ranks_per_process() : 0;
  if (!state_->elastic || std::ssize(of_own_ranks) != expected) {
    throw UsageError(
        "prepare.elastic-loop",
        {.what = "elastic_sum()",
         .got = state_->elastic ? str(of_own_ranks.size(), " numbers")
                                : "an Accelerator without elastic_ranks",
         .expected = state_->elastic ? str(expected, ", one for each virtual rank of the process")
                                     : "one with AcceleratorOptions::elastic_ranks"});
  }
  const at::Tensor all =
      group().gather(at::tensor(of_own_ranks, at::kDouble).unsqueeze(0)).contiguous();
  const double* const values = all.const_data_ptr<double>();
  return tree_sum({values, values + all.numel()});
}

std::optional<ElasticPosition> Accelerator::elastic_position() const {
  return state_->elastic ? std::optional(state_->elastic->position()) : std::nullopt;
}

void Accelerator::restore_elastic_position(const std::optional<ElasticPosition>& saved,
                                           const std::filesystem::path& from) {
  ElasticRanks::check_same_run(saved, state_->elastic.get(), from.string());
  if (state_->elastic) state_->elastic->restore(*saved);
}

std::optional<LossScalePosition> Accelerator::loss_scale() const {
  return state_->scaling ? std::optional(state_->scaling->position()) : std::nullopt;
}

void Accelerator::restore_loss_scale(const std::optional<LossScalePosition>& saved) {
  if (!state_->scaling) return;
  if (!saved) return state_->scaling->reset();
  state_->scaling->restore(*saved);
}

void Accelerator::mark_gradients_used() {
  state_->check_without_scaled_losses(
      "mark_gradients_used(), for an optimizer that is not prepared,");
  state_->accumulation.mark_gradients_used();
}

std::int64_t Accelerator::gradient_accumulation_steps() const {
  return state_->accumulation_steps();
}

void Accelerator::set_gradient_accumulation_steps(std::int64_t steps) {
  state_->check_without_elastic_ranks("set_gradient_accumulation_steps()");
  if (state_->stepping.in_backward && steps > 1)
    throw_needs_gradients("set_gradient_accumulation_steps() above 1");
  state_->accumulation.set_steps(steps);
}

OpenWindows Accelerator::open_windows() const {
  state_->check_without_elastic_ranks("open_windows()");
  return open_windows_of(*state_);
}

void Accelerator::restore_windows(const OpenWindows& saved, const std::filesystem::path& from) {
  state_->check_without_elastic_ranks("restore_windows()");
  check_windows(*state_, saved, from);
  hasten::restore_windows(*state_, saved);
}

ExchangeHook Accelerator::register_exchange_pre_hook(std::function<void()> function) {
  state_->check_without_elastic_ranks("register_exchange_pre_hook()");
  return state_->gradients.add_pre_exchange_function(std::move(function));
}

SynchronizationScope Accelerator::hold_back(const torch::nn::Module* model) const {
  state_->check_without_elastic_ranks("no_sync()");
  return {state_, model, Synchronization::later};
}

SynchronizationScope Accelerator::exchange_now(const torch::nn::Module* model) const {
  state_->check_without_elastic_ranks("trigger_sync_in_backward()");
  return {state_, model, Synchronization::now};
}

AutocastGuard Accelerator::autocast() const {
  state_->count_forward_pass();
  return AutocastGuard(state_->precision, device().type());
}

Precision Accelerator::mixed_precision() const { return state_->precision; }

const ProcessState& Accelerator::process() const { return state_->process; }

const Group& Accelerator::group() const { return state_->group; }

void Accelerator::require_all_have_data(const char* call) const {
  state_->gradients.announcer().require_all_have_data(call);
}

at::Tensor Accelerator::gather_real_rows(const at::Tensor& tensor) const {
  return hasten::gather_for_metrics(tensor, *state_);
}

at::Tensor Accelerator::gather_rows(const at::Tensor& rows) const {
  require_all_have_data("gather_rows");
  if (group().size() == 1) return rows;
  return *gather_uneven_rows(rows, rows.size(0), group());
}

void Accelerator::wait_for_everyone() const {
  require_all_have_data("wait_for_everyone");
  group().barrier();
}

void Accelerator::remove_model(const torch::nn::Module* model) { state_->remove_model(model); }

void Accelerator::drop_windows() { state_->drop_windows(); }

void Accelerator::set_trigger() { state_->trigger = true; }

bool Accelerator::check_trigger() {
  require_all_have_data("check_trigger");
  const bool seen = group().reduce(at::full({1}, state_->trigger ? 1.0 : 0.0)).item<double>() > 0;
  state_->trigger = state_->trigger && !seen;
  return seen;
}

void Accelerator::on_main_process(const std::function<void()>& f) const {
  if (is_main_process()) f();
}

void Accelerator::on_local_main_process(const std::function<void()>& f) const {
  if (is_local_main_process()) f();
}

void Accelerator::on_last_process(const std::function<void()>& f) const {
  if (is_last_process()) f();
}

void Accelerator::on_process(std::int64_t process_index, const std::function<void()>& f) const {
  if (process().process_index == process_index) f();
}

Logger Accelerator::get_logger(const std::string& name, LogLevel level) const {
  return Logger(name, level, process(), group());
}

TensorDict Accelerator::to_device(TensorDict batch, std::int64_t rows) const {
  TensorDict placed = state_->placement.place(std::move(batch), rows);
  if (!state_->observers.empty()) report_batch(observed_tensors(placed));
  return placed;
}

at::Tensor Accelerator::on_device(const at::Tensor& tensor) const {
  const auto type = state_->placement.type_of(tensor);
  return hasten::to_device(type ? tensor.to(*type) : tensor, state_->placement.device);
}

void Accelerator::report_batch(const std::vector<at::Tensor>& tensors) const {
  state_->observers.notify(&StepObserver::on_batch, tensors);
}

void Accelerator::to_device(torch::nn::Module& module) const {
  detail::place_module(*state_, module);
}

std::int64_t Accelerator::compiled_programs() const {
  return device_of(device()).compiled_programs();
}

Anatomy Accelerator::anatomy(AnatomyOptions options) const {
  return Anatomy(options, std::shared_ptr<StepObservers>(state_, &state_->observers));
}

void Accelerator::print(const std::string& line) const {
  if (is_local_main_process()) std::cout << line << std::endl;
}

void set_seed(std::int64_t seed, bool device_specific) {
  if (device_specific) seed += this_worker().rank;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
}

}  // namespace hasten
