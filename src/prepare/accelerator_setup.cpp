#include "prepare/accelerator_setup.h"

#include <utility>

#include "autograd/engine.h"
#include "device/collective_backend.h"
#include "device/device.h"
#include "hasten/base/error.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"
#include "machine/endpoint.h"
#include "optim/loss_scale.h"
#include "options/variable_of.h"
#include "prepare/compile_watch.h"

namespace hasten {
namespace {

bool is_enabled(const config::Environment& environment, const char* name) {
  return config::environment_flag(environment, name).value_or(false);
}
bool is_disabled(const config::Environment& environment, const char* name) {
  return !config::environment_flag(environment, name).value_or(true);
}

// Returns the precision from the options or, if it is not set there, from hasten launch's
// environment.
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

// Throws if the options for float16 cannot work.
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

// Logs on rank 0 the address at which the processes meet, unless MASTER_ADDR and MASTER_PORT were
// both given. It helps to find a firewall or a port that is in use.
void log_rendezvous_address(const Worker& worker) {
  const bool was_given =
      worker.address_source == "MASTER_ADDR" && worker.port_source == "MASTER_PORT";
  if (worker.world_size == 1 || worker.rank != 0 || was_given) return;
  const Endpoint address{.host = worker.master_addr, .port = worker.master_port};
  log_line(str("hasten: ", worker.world_size, " processes started by ", name_of(worker.started_by),
               " meet at ", to_text(address), " (address: ", worker.address_source,
               "; port: ", worker.port_source, ")"));
}

// Returns the backend for the device's tensors: the one in the options or, if that is automatic,
// the one in hasten launch's environment.
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

// Returns the choice that the backend means on the device. `own` is the device's own backend. Any
// other name but gloo leaves the choice automatic.
CollectiveChoice choice_of(ProcessGroupBackend backend, const CollectiveBackend* own) {
  if (backend == ProcessGroupBackend::gloo) return CollectiveChoice::host;
  return own != nullptr && own->name() == name_of(backend) ? CollectiveChoice::own
                                                           : CollectiveChoice::automatic;
}

// Sets the device of the process, and the backend that the device's placement has chosen.
void place(const Device& device, const Worker& worker, ProcessState& process,
           ProcessGroupBackend& backend) {
  const CollectiveBackend* const own = device.collectives();
  const Placement placement = device.place(worker, choice_of(backend, own));
  process.device = placement.device;
  if (placement.collectives == CollectiveChoice::host) backend = ProcessGroupBackend::gloo;
  if (placement.collectives == CollectiveChoice::own)
    backend = from_name<ProcessGroupBackend>(own->name()).value();
}

// Returns the elastic options. Throws if results would depend on the number of processes.
ElasticOptions elastic_options_of(const AcceleratorOptions& options, const ProcessState& process) {
  if (options.elastic_ranks == 0) return {};
  const ElasticOptions elastic = {.ranks = options.elastic_ranks,
                                  .steps = options.gradient_accumulation_steps,
                                  .threads = options.elastic_threads};
  ElasticRanks::check(elastic, process.num_processes, process.device);
  const auto check_unset = [](bool is_set, const char* option, const char* expected) {
    if (!is_set) return;
    throw ConfigError("prepare.elastic", {.what = str(option, ", with elastic_ranks"),
                                          .expected = expected,
                                          .hint = "leave one of them out"});
  };
  const DataLoaderConfiguration& loaders = options.dataloader_config;
  check_unset(loaders.split_batches, "split_batches", "a batch_size for each virtual rank");
  check_unset(loaders.dispatch_batches.value_or(false), "dispatch_batches",
              "processes that read their own batches");
  check_unset(!loaders.even_batches, "even_batches = false",
              "virtual ranks with equally many batches");
  check_unset(options.ddp.comm_hook != CommunicationHook::no ||
                  options.ddp.comm_wrapper != CommunicationWrapper::no,
              "a comm_hook or comm_wrapper", "gradients that are exchanged as they are");
  check_unset(!options.ddp.broadcast_buffers, "broadcast_buffers = false",
              "the buffers of virtual rank 0 in all processes");
  return elastic;
}

SteppingOptions stepping_of(const AcceleratorOptions& options, const ProcessState& process,
                            const ElasticOptions& elastic, Precision precision) {
  const SteppingOptions stepping = {.in_backward = options.step_in_backward,
                                    .offloads_states = options.offload_optimizer_states};
  check_stepping(stepping, process, options.gradient_accumulation_steps, elastic.ranks);
  if (stepping.in_backward && precision == Precision::fp16)
    throw_needs_gradients("fp16, which looks for overflow in all gradients before a step");
  return stepping;
}

GroupOptions group_options_of(const AcceleratorOptions& options,
                              const config::Environment& environment, ProcessGroupBackend backend,
                              at::Device device) {
  const InitProcessGroupKwargs& group = options.process_group;
  return {.timeout = group.timeout,
          .watchdog = group.watchdog && !is_disabled(environment, "HASTEN_WATCHDOG"),
          .debug = options.debug || is_enabled(environment, "ACCELERATE_DEBUG_MODE"),
          .backend = backend,
          .device = device,
          .shared_memory = group.shared_memory && !is_disabled(environment, "HASTEN_SHARED_MEMORY"),
          .encrypt = group.encrypt};
}

void set_placement(AcceleratorState& state, const AcceleratorOptions& options,
                   const config::Environment& environment, const DeviceTraits& device) {
  BatchPlacement& placement = state.placement;
  placement.moves = options.device_placement;
  placement.pads =
      options.dataloader_config.pad_to_static_shapes.value_or(device.needs_static_shapes);
  if (!device.narrows_doubles_with_bf16 || state.precision != Precision::bf16) return;
  const bool downcast =
      options.downcast_bf16 || is_enabled(environment, "ACCELERATE_DOWNCAST_BF16");
  placement.double_type = downcast ? at::kFloat : at::kBFloat16;
}

// If the device compiles programs, reports batches that make it compile late in a run.
void add_compile_watch(AcceleratorState& state, const Device& device) {
  state.observers.add(std::make_shared<CompileWatch>(
      [&device] { return device.compiled_programs(); },
      [at = state.process.device] { synchronize(at); },
      Logger("hasten", LogLevel::warning, state.process, state.group)));
}

}  // namespace

std::shared_ptr<AcceleratorState> make_accelerator_state(const AcceleratorOptions& options,
                                                         bool is_dry_run) {
  const config::Environment environment = config::whole_environment();
  const Worker worker = worker_of(environment);
  const bool cpu = options.cpu || is_enabled(environment, "ACCELERATE_USE_CPU");
  ProcessState process = ProcessState::of(worker, cpu);
  ProcessGroupBackend backend = backend_of(options, environment);
  const Device& device = choose_device({.cpu = cpu,
                                        .required = options.tpu ? "tpu" : "",
                                        .only_built_in = is_dry_run,
                                        .environment = environment});
  place(device, worker, process, backend);
  const DeviceTraits& traits = device.traits();
  // The program may have run a backward pass before the GPU's library was loaded.
  if (traits.is_built_in) ensure_engine_thread(process.device);
  // These calls throw before the processes meet.
  const GroupOptions of_group = group_options_of(options, environment, backend, process.device);
  const Precision precision = precision_of(options, environment, traits);
  check_scaled_losses(options, precision);
  const ElasticOptions elastic = elastic_options_of(options, process);
  const SteppingOptions stepping = stepping_of(options, process, elastic, precision);
  log_rendezvous_address(worker);
  auto state = std::make_shared<AcceleratorState>(
      precision, process, Group::form(worker, of_group), options.gradient_accumulation_steps,
      options.ddp, options.dataloader_config, elastic, options.grad_scaler);
  state->stepping = stepping;
  state->cuda_graph = options.cuda_graph;
  set_placement(*state, options, environment, traits);
  if (traits.needs_static_shapes) add_compile_watch(*state, device);
  return state;
}

}  // namespace hasten
