#include "hasten/accelerator.h"

#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/torch.h>

#include <iostream>

#include "anatomy/requested_anatomy.h"
#include "device/tpu.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "machine/endpoint.h"
#include "prepare/compile_watch.h"

namespace hasten {

AccumulateScope::AccumulateScope(std::shared_ptr<Step> step,
                                 const std::vector<std::shared_ptr<torch::nn::Module>>& models)
    : step_(std::move(step)) {
  step_->begin_micro_batch(models);
}

AccumulateScope::~AccumulateScope() { step_->end_micro_batch(); }

ProfileScope::ProfileScope(std::filesystem::path trace) : trace_(std::move(trace)) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO,
                                        /*report_input_shapes=*/true, /*profile_memory=*/true);
  const std::set<profiler::ActivityType> activities = {profiler::ActivityType::CPU};
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
}

ProfileScope::~ProfileScope() {
  torch::autograd::profiler::disableProfiler()->save(trace_.string());
}

SynchronizationScope::SynchronizationScope(std::shared_ptr<Step> step,
                                           const torch::nn::Module* model, Synchronization how)
    : step_(std::move(step)), model_(model), before_(step_->set_synchronization(model, how)) {}

SynchronizationScope::~SynchronizationScope() { step_->set_synchronization(model_, before_); }

namespace {

// Returns the precision of the options or, if unset, of hasten launch's environment.
Precision precision_of(const AcceleratorOptions& options, const config::Environment& environment,
                       at::Device device) {
  if (options.mixed_precision) return *options.mixed_precision;
  const auto found = environment.find("ACCELERATE_MIXED_PRECISION");
  if (found == environment.end() || found->second.empty()) return Precision::no;
  // TPUs have no fp16. Accelerate takes this value for their 16-bit type, bfloat16.
  if (found->second == "fp16" && device.is_privateuseone()) return Precision::bf16;
  const auto precision = from_name<Precision>(found->second);
  if (precision) return *precision;
  throw ConfigError(
      "prepare.precision",
      {.what = "ACCELERATE_MIXED_PRECISION", .got = found->second, .expected = "no or bf16"});
}

// Prints on rank 0 where the processes meet, which explains a firewall or a port in use, unless
// MASTER_ADDR and MASTER_PORT were both given.
void print_rendezvous_address(const Worker& worker) {
  const bool was_given =
      worker.address_source == "MASTER_ADDR" && worker.port_source == "MASTER_PORT";
  if (worker.world_size == 1 || worker.rank != 0 || was_given) return;
  const Endpoint address{.host = worker.master_addr, .port = worker.master_port};
  std::cerr << str("hasten: ", worker.world_size, " processes started by ",
                   name_of(worker.started_by), " meet at ", to_text(address),
                   " (address: ", worker.address_source, "; port: ", worker.port_source, ")\n");
}

// Returns the backend for the device's tensors: the options' or, if automatic, the one in hasten
// launch's environment.
ProcessGroupBackend backend_of(const AcceleratorOptions& options,
                               const config::Environment& environment) {
  constexpr const char* kVariable = "HASTEN_PROCESS_GROUP_BACKEND";
  const auto found = environment.find(kVariable);
  if (options.process_group.backend != ProcessGroupBackend::automatic ||
      found == environment.end() || found->second.empty())
    return options.process_group.backend;
  const auto backend = from_name<ProcessGroupBackend>(found->second);
  if (backend) return *backend;
  throw ConfigError(
      "process.backend",
      {.what = kVariable, .got = found->second, .expected = "automatic, nccl, gloo or tpu_dist"});
}

// Returns the backend for TPUs: with several processes tpu_dist if the TPUs can run programs
// together, else Gloo, which rank 0 reports. An explicit gloo or tpu_dist is kept.
ProcessGroupBackend tpu_backend(const Worker& worker, ProcessGroupBackend requested) {
  if (worker.world_size == 1 || requested == ProcessGroupBackend::gloo ||
      requested == ProcessGroupBackend::tpu_dist)
    return requested;
  if (tpus_can_run_together()) return ProcessGroupBackend::tpu_dist;
  static const bool reported = [&] {  // once per process
    if (worker.rank == 0) {
      std::cerr << "hasten: PCI lists no TPU on this machine, so processes exchange tensors of "
                   "device tpu with Gloo through host memory, which is slow. Set "
                   "HASTEN_PROCESS_GROUP_BACKEND=tpu_dist to use the links between TPUs\n";
    }
    return true;
  }();
  static_cast<void>(reported);
  return ProcessGroupBackend::gloo;
}

at::Device tpu_of(const Worker& worker, ProcessGroupBackend backend) {
  if (worker.world_size == 1) return tpu_device();
  return tpu_device_of(worker, backend == ProcessGroupBackend::tpu_dist ? TpuJob::one_slice
                                                                        : TpuJob::separate_chips);
}

std::shared_ptr<Step> step_of(const AcceleratorOptions& options) {
  const config::Environment environment = config::whole_environment();
  const Worker worker = worker_of(environment);
  const auto is_enabled = [&](const char* name) {
    return config::environment_flag(environment, name).value_or(false);
  };
  const auto is_disabled = [&](const char* name) {
    return !config::environment_flag(environment, name).value_or(true);
  };
  const bool cpu = options.cpu || is_enabled("ACCELERATE_USE_CPU");
  const auto wants_tpu = [&] {
    return options.tpu || is_enabled("ACCELERATE_USE_TPU") ||
           (!is_disabled("ACCELERATE_USE_TPU") && machine_has_tpu());
  };
  ProcessState process = ProcessState::of(worker, cpu);
  ProcessGroupBackend backend = backend_of(options, environment);
  if (!cpu && !DryRun::active() && wants_tpu()) {  // a dry run has a device of its own
    backend = tpu_backend(worker, backend);
    process.device = tpu_of(worker, backend);
  }
  const GroupOptions of_group{
      .timeout = options.process_group.timeout,
      .watchdog = options.process_group.watchdog && !is_disabled("HASTEN_WATCHDOG"),
      .debug = options.debug || is_enabled("ACCELERATE_DEBUG_MODE"),
      .backend = backend,
      .device = process.device,
      .shared_memory = options.process_group.shared_memory && !is_disabled("HASTEN_SHARED_MEMORY"),
      .encrypt = options.process_group.encrypt};
  // Throws before the processes meet.
  const Precision precision = precision_of(options, environment, process.device);
  print_rendezvous_address(worker);
  auto step = std::make_shared<Step>(options.gradient_accumulation_steps, precision, process,
                                     Group::form(worker, of_group), options.ddp);
  step->dataloader = options.dataloader_config;
  step->device_placement = options.device_placement;
  if (!process.device.is_privateuseone()) return step;
  if (!step->dataloader.pad_to_static_shapes) step->dataloader.pad_to_static_shapes = true;
  if (precision == Precision::bf16) {
    const bool downcast = options.downcast_bf16 || is_enabled("ACCELERATE_DOWNCAST_BF16");
    step->double_type_on_device = downcast ? at::kFloat : at::kBFloat16;
  }
  step->observers.add(std::make_shared<CompileWatch>(
      compiled_tpu_programs, [device = process.device] { wait_for_tpu(device); },
      Logger("hasten", LogLevel::warning, process, step->group)));
  return step;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options) : step_(step_of(options)) {
  anatomy::attach_recorder_if_requested(std::shared_ptr<StepObservers>(step_, &step_->observers));
}

DeferredScalar Accelerator::clip_grad_norm_(const std::vector<at::Tensor>& parameters,
                                            double max_norm, double norm_type) {
  if (!step_->close_due_windows(parameters)) return 0.0;
  return hasten::clip_grad_norm_(parameters, max_norm, norm_type);
}

void Accelerator::clip_grad_value_(const std::vector<at::Tensor>& parameters, double clip_value) {
  if (step_->close_due_windows(parameters)) hasten::clip_grad_value_(parameters, clip_value);
}

bool Accelerator::check_trigger() {
  step_->require_all("check_trigger");
  const bool seen = group().reduce(at::full({1}, step_->trigger ? 1.0 : 0.0)).item<double>() > 0;
  step_->trigger = step_->trigger && !seen;
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
  TensorDict on_device = step_->place_batch(std::move(batch), rows);
  if (step_->observers.empty()) return on_device;
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : on_device) tensors.push_back(tensor);
  step_->observers.notify(&StepObserver::on_batch, tensors);
  return on_device;
}

std::int64_t Accelerator::compiled_programs() const {
  return device().is_privateuseone() ? compiled_tpu_programs() : 0;
}

Anatomy Accelerator::anatomy(AnatomyOptions options) const {
  return Anatomy(options, std::shared_ptr<StepObservers>(step_, &step_->observers));
}

void Accelerator::print(const std::string& line) const {
  if (is_local_main_process()) std::cout << line << std::endl;
}

void set_seed(std::int64_t seed, bool device_specific) {
  if (device_specific) seed += worker_of(config::whole_environment()).rank;
  torch::manual_seed(static_cast<std::uint64_t>(seed));
}

}  // namespace hasten
