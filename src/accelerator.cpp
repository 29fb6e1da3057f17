#include "hasten/accelerator.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>

#include "attach/attach.h"
#include "autograd/engine.h"
#include "device/collective_backend.h"
#include "device/device.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "hasten/process/once.h"
#include "hasten/tpu/anatomy/dry_tpu.h"
#include "machine/endpoint.h"
#include "optim/loss_scale.h"
#include "options/variable_of.h"
#include "prepare/accelerator_state.h"
#include "prepare/compile_watch.h"
#include "prepare/gather_counted.h"
#include "prepare/metrics.h"
#include "prepare/state_checkpoint.h"
#include "prepare/window_state.h"
#include "track/tracker_set.h"

namespace hasten {

AccumulateScope::AccumulateScope(std::shared_ptr<AcceleratorState> state,
                                 const std::vector<std::shared_ptr<torch::nn::Module>>& models)
    : state_(std::move(state)) {
  state_->begin_micro_batch(models);
}

AccumulateScope::~AccumulateScope() { state_->end_micro_batch(); }

ProfileScope::ProfileScope(std::filesystem::path trace) : trace_(std::move(trace)) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO,
                                        /*report_input_shapes=*/true, /*profile_memory=*/true);
  std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  const std::vector<const Device*>& devices = all_devices();
  if (std::any_of(devices.begin(), devices.end(),
                  [](const Device* each) { return each->is_profiled(); }))
    activities.insert(profiler::ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

ProfileScope::~ProfileScope() {
  torch::autograd::profiler::disableProfiler()->save(trace_.string());
}

SynchronizationScope::SynchronizationScope(std::shared_ptr<AcceleratorState> state,
                                           const torch::nn::Module* model, Synchronization how)
    : state_(std::move(state)),
      model_(model),
      before_(state_->gradients.set_synchronization(model, how)) {}

SynchronizationScope::~SynchronizationScope() {
  state_->gradients.set_synchronization(model_, before_);
}

namespace {

// Returns the precision of the options or, if unset, of hasten launch's environment.
Precision precision_of(const AcceleratorOptions& options, const config::Environment& environment,
                       const DeviceTraits& device) {
  const auto on_device = [&](Precision precision) {
    const bool narrows = precision == Precision::fp16 && device.takes_fp16_as_bf16;
    return narrows ? Precision::bf16 : precision;
  };
  if (options.mixed_precision) return on_device(*options.mixed_precision);
  const std::string name = config::variable_of(environment, "ACCELERATE_MIXED_PRECISION");
  if (name.empty()) return Precision::no;
  const auto precision = from_name<Precision>(name);
  if (precision) return on_device(*precision);
  throw ConfigError(
      "prepare.precision",
      {.what = "ACCELERATE_MIXED_PRECISION", .got = name, .expected = "no, bf16 or fp16"});
}

// Throws for options of float16 that cannot work.
void check_scaled_losses(const AcceleratorOptions& options, Precision precision) {
  if (precision != Precision::fp16) return;
  const LossScale scale(options.grad_scaler);  // checks its options
  if (options.step_in_backward && options.grad_scaler.enabled)
    throw_needs_gradients("mixed_precision fp16");
  const CommunicationHook hook = options.ddp.comm_hook;
  if (hook != CommunicationHook::power_sgd && hook != CommunicationHook::batched_power_sgd) return;
  throw ConfigError(
      "prepare.precision",
      {.what = str("comm_hook ", name_of(hook), ", with mixed_precision fp16"),
       .got = "gradients that may be infinite, which would stay in the error feedback",
       .expected = "another comm_hook",
       .hint = "use bf16, or comm_hook fp16"});
}

// Logs on rank 0 where the processes meet, which explains a firewall or a port in use, unless
// MASTER_ADDR and MASTER_PORT were both given.
void log_rendezvous_address(const Worker& worker) {
  const bool was_given =
      worker.address_source == "MASTER_ADDR" && worker.port_source == "MASTER_PORT";
  if (worker.world_size == 1 || worker.rank != 0 || was_given) return;
  const Endpoint address{.host = worker.master_addr, .port = worker.master_port};
  log_line(str("hasten: ", worker.world_size, " processes started by ", name_of(worker.started_by),
               " meet at ", to_text(address), " (address: ", worker.address_source,
               "; port: ", worker.port_source, ")"));
}

// Returns the backend for the device's tensors: the options' or, if automatic, the one in hasten
// launch's environment.
ProcessGroupBackend backend_of(const AcceleratorOptions& options,
                               const config::Environment& environment) {
  constexpr const char* kVariable = "HASTEN_PROCESS_GROUP_BACKEND";
  const std::string name = config::variable_of(environment, kVariable);
  if (options.process_group.backend != ProcessGroupBackend::automatic || name.empty())
    return options.process_group.backend;
  const auto backend = from_name<ProcessGroupBackend>(name);
  if (backend) return *backend;
  throw ConfigError(
      "process.backend",
      {.what = kVariable, .got = name, .expected = "automatic, nccl, gloo or tpu_dist"});
}

// Returns what the backend means on the device; a name that is not its own leaves the choice.
CollectiveChoice choice_of(ProcessGroupBackend backend, const CollectiveBackend* own) {
  if (backend == ProcessGroupBackend::gloo) return CollectiveChoice::host;
  return own != nullptr && own->name() == name_of(backend) ? CollectiveChoice::own
                                                           : CollectiveChoice::automatic;
}

// Sets the device of the process and the backend that it was opened for.
void place(const Device& device, const Worker& worker, ProcessState& process,
           ProcessGroupBackend& backend) {
  const CollectiveBackend* const own = device.collectives();
  const Placement placement = device.place(worker, choice_of(backend, own));
  process.device = placement.device;
  if (placement.collectives == CollectiveChoice::host) backend = ProcessGroupBackend::gloo;
  if (placement.collectives == CollectiveChoice::own)
    backend = from_name<ProcessGroupBackend>(own->name()).value();
}

// Throws for options whose results would depend on the number of processes.
ElasticOptions elastic_options_of(const AcceleratorOptions& options, const ProcessState& process) {
  if (options.elastic_ranks == 0) return {};
  const ElasticOptions elastic = {.ranks = options.elastic_ranks,
                                  .steps = options.gradient_accumulation_steps,
                                  .threads = options.elastic_threads};
  ElasticRanks::check(elastic, process.num_processes, process.device);
  const auto refuse = [](bool is_set, const char* option, const char* expected) {
    if (!is_set) return;
    throw ConfigError("prepare.elastic", {.what = str(option, ", with elastic_ranks"),
                                          .expected = expected,
                                          .hint = "leave one of them out"});
  };
  const DataLoaderConfiguration& loaders = options.dataloader_config;
  refuse(loaders.split_batches, "split_batches", "a batch_size for each virtual rank");
  refuse(loaders.dispatch_batches.value_or(false), "dispatch_batches",
         "processes that read their own batches");
  refuse(!loaders.even_batches, "even_batches = false", "virtual ranks with equally many batches");
  refuse(options.ddp.comm_hook != CommunicationHook::no ||
             options.ddp.comm_wrapper != CommunicationWrapper::no,
         "a comm_hook or comm_wrapper", "gradients that are exchanged as they are");
  refuse(!options.ddp.broadcast_buffers, "broadcast_buffers = false",
         "the buffers of virtual rank 0 in all processes");
  return elastic;
}

std::shared_ptr<AcceleratorState> state_of(const AcceleratorOptions& options) {
  if (hasten_accelerator_begins != nullptr) hasten_accelerator_begins();
  const config::Environment environment = config::whole_environment();
  const Worker worker = worker_of(environment);
  const auto is_enabled = [&](const char* name) {
    return config::environment_flag(environment, name).value_or(false);
  };
  const auto is_disabled = [&](const char* name) {
    return !config::environment_flag(environment, name).value_or(true);
  };
  const bool cpu = options.cpu || is_enabled("ACCELERATE_USE_CPU");
  ProcessState process = ProcessState::of(worker, cpu);
  ProcessGroupBackend backend = backend_of(options, environment);
  const DeviceRequest request = {.cpu = cpu,
                                 .required = options.tpu ? "tpu" : "",
                                 .only_built_in = DryRun::active(),  // it has a device of its own
                                 .environment = environment};
  const Device& device = choose_device(request);
  place(device, worker, process, backend);
  const DeviceTraits& traits = device.traits();
  // The program may have run a backward pass before the GPU's library was loaded.
  if (traits.is_built_in) ensure_engine_thread(process.device);
  const GroupOptions of_group{
      .timeout = options.process_group.timeout,
      .watchdog = options.process_group.watchdog && !is_disabled("HASTEN_WATCHDOG"),
      .debug = options.debug || is_enabled("ACCELERATE_DEBUG_MODE"),
      .backend = backend,
      .device = process.device,
      .shared_memory = options.process_group.shared_memory && !is_disabled("HASTEN_SHARED_MEMORY"),
      .encrypt = options.process_group.encrypt};
  // These throw before the processes meet.
  const Precision precision = precision_of(options, environment, traits);
  check_scaled_losses(options, precision);
  const ElasticOptions elastic = elastic_options_of(options, process);
  const SteppingOptions stepping = {.in_backward = options.step_in_backward,
                                    .offloads_states = options.offload_optimizer_states};
  check_stepping(stepping, process, options.gradient_accumulation_steps, elastic.ranks);
  if (stepping.in_backward && precision == Precision::fp16)
    throw_needs_gradients("fp16, which looks for overflow in all gradients before a step");
  log_rendezvous_address(worker);
  auto state = std::make_shared<AcceleratorState>(
      precision, process, Group::form(worker, of_group), options.gradient_accumulation_steps,
      options.ddp, options.dataloader_config, elastic, options.grad_scaler);
  state->placement.moves = options.device_placement;
  state->stepping = stepping;
  state->placement.pads =
      options.dataloader_config.pad_to_static_shapes.value_or(traits.needs_static_shapes);
  if (traits.narrows_doubles_with_bf16 && precision == Precision::bf16) {
    const bool downcast = options.downcast_bf16 || is_enabled("ACCELERATE_DOWNCAST_BF16");
    state->placement.double_type = downcast ? at::kFloat : at::kBFloat16;
  }
  if (!traits.needs_static_shapes) return state;
  state->observers.add(std::make_shared<CompileWatch>(
      [&device] { return device.compiled_programs(); }, [at = process.device] { synchronize(at); },
      Logger("hasten", LogLevel::warning, process, state->group)));
  return state;
}

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
                                                .hint = "pass 0 to keep none of them for ever"});
  }
  if (project.automatic_checkpoint_naming && project.project_dir.empty()) {
    throw ConfigError("checkpoint.project-dir",
                      {.what = "project_config.automatic_checkpoint_naming",
                       .got = "no project_dir",
                       .expected = "the folder of the project"});
  }
}

// Returns a hook that is called as one of these functions.
CheckpointHook added_hook(std::vector<std::shared_ptr<CheckpointFunction>>& functions,
                          CheckpointFunction function) {
  functions.push_back(std::make_shared<CheckpointFunction>(std::move(function)));
  return CheckpointHook(functions.back());
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options) {
  const bool is_main = worker_of(config::whole_environment()).rank == 0;
  // Throws before the processes meet.
  trackers_ = std::make_shared<TrackerSet>(options.log_with, options.logging_dir, is_main);
  check_project(options.project_config);
  state_ = state_of(options);
  project_ = options.project_config;
  const std::shared_ptr<StepObservers> observers(state_, &state_->observers);
  if (DryTpu* const dry = DryTpu::active()) dry->listen_to(*observers);
  if (hasten_accelerator_constructed != nullptr) hasten_accelerator_constructed(observers);
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
  require_all("init_trackers");
  // The other processes start trackers that keep nothing, in which nothing fails.
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

void Accelerator::save_module(const torch::nn::Module& module, const std::filesystem::path& folder,
                              const SaveModuleOptions& options) const {
  require_all("save_model");
  once(group(), is_main_process(), [&] { save_weights(module, folder, options); });
}

LoadedNames Accelerator::load_module(torch::nn::Module& module, const std::filesystem::path& folder,
                                     const LoadModuleOptions& options) const {
  require_all("load_model");
  LoadedNames names;
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
  const std::int64_t expected = state_->elastic ? state_->elastic->turns() : 0;
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

void Accelerator::stepped() {
  state_->refuse_with_scaled_losses("stepped(), for an optimizer that is not prepared,");
  state_->accumulation.mark_gradients_used();
}

std::int64_t Accelerator::gradient_accumulation_steps() const {
  return state_->accumulation_steps();
}

void Accelerator::set_gradient_accumulation_steps(std::int64_t steps) {
  state_->refuse_with_elastic_ranks("set_gradient_accumulation_steps()");
  if (state_->stepping.in_backward && steps > 1)
    throw_needs_gradients("set_gradient_accumulation_steps() above 1");
  state_->accumulation.set_steps(steps);
}

OpenWindows Accelerator::open_windows() const {
  state_->refuse_with_elastic_ranks("open_windows()");
  return open_windows_of(*state_);
}

void Accelerator::restore_windows(const OpenWindows& saved, const std::filesystem::path& from) {
  state_->refuse_with_elastic_ranks("restore_windows()");
  check_windows(*state_, saved, from);
  hasten::restore_windows(*state_, saved);
}

ExchangeHook Accelerator::register_exchange_pre_hook(std::function<void()> function) {
  state_->refuse_with_elastic_ranks("register_exchange_pre_hook()");
  return state_->gradients.add_pre_exchange_function(std::move(function));
}

SynchronizationScope Accelerator::hold_back(const torch::nn::Module* model) const {
  state_->refuse_with_elastic_ranks("no_sync()");
  return {state_, model, Synchronization::later};
}

SynchronizationScope Accelerator::exchange_now(const torch::nn::Module* model) const {
  state_->refuse_with_elastic_ranks("trigger_sync_in_backward()");
  return {state_, model, Synchronization::now};
}

AutocastGuard Accelerator::autocast() const {
  state_->note_forward();
  return AutocastGuard(state_->precision, device().type());
}

Precision Accelerator::mixed_precision() const { return state_->precision; }

const ProcessState& Accelerator::process() const { return state_->process; }

const Group& Accelerator::group() const { return state_->group; }

void Accelerator::require_all(const char* call) const { state_->gradients.require_all(call); }

at::Tensor Accelerator::gather_real_rows(const at::Tensor& tensor) const {
  return hasten::gather_for_metrics(tensor, *state_);
}

at::Tensor Accelerator::gather_rows(const at::Tensor& rows) const {
  require_all("gather_rows");
  if (group().size() == 1) return rows;
  return *gather_counted(rows, rows.size(0), group());
}

void Accelerator::wait_for_everyone() const {
  require_all("wait_for_everyone");
  group().barrier();
}

void Accelerator::remove_model(const torch::nn::Module* model) { state_->remove_model(model); }

void Accelerator::drop_windows() { state_->drop_windows(); }

void Accelerator::set_trigger() { state_->trigger = true; }

bool Accelerator::check_trigger() {
  require_all("check_trigger");
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
  if (state_->observers.empty()) return placed;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : placed) tensors.push_back(tensor);
  report_batch(tensors);
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
  if (device_specific) seed += worker_of(config::whole_environment()).rank;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
}

}  // namespace hasten
