#include "hasten/anatomy/out_of_memory.h"

#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "anatomy/caching_allocator.h"
#include "anatomy/dry_gpu.h"
#include "anatomy/dry_tensor.h"
#include "anatomy/fitting_rows.h"
#include "anatomy/local_gpu.h"
#include "anatomy/step_mark.h"
#include "autograd/engine.h"
#include "base/child_process.h"
#include "base/count_text.h"
#include "base/parse_number.h"
#include "device/device.h"
#include "device/memory_failure.h"
#include "hasten/anatomy/dry_run.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"
#include "process/fork/fork_safety.h"

namespace hasten {
namespace anatomy {

StepMark::StepMark(const std::vector<at::Tensor>& parameters)
    : parameters_(&parameters),
      first_node_(static_cast<std::int64_t>(at::sequence_number::peek())) {
  gradients_.reserve(parameters.size());
  for (const at::Tensor& each : parameters) gradients_.push_back(gradient_of(each));
}

StepMark::Gradient StepMark::gradient_of(const at::Tensor& parameter) {
  const at::Tensor& gradient = parameter.grad();
  if (!gradient.defined()) return {};
  return {gradient.unsafeGetTensorImpl(),
          gradient.is_inference() ? 0 : static_cast<std::uint32_t>(gradient._version())};
}

StepProgress StepMark::progress() const {
  StepProgress progress{.nodes =
                            static_cast<std::int64_t>(at::sequence_number::peek()) - first_node_};
  progress.gradients = changed_gradients();
  return progress;
}

bool StepMark::may_have_reached(const StepProgress& other) const {
  return std::this_thread::get_id() == thread_ ? progress() == other
                                               : changed_gradients() == other.gradients;
}

std::int64_t StepMark::changed_gradients() const {
  std::int64_t changed = 0;
  for (std::size_t i = 0; i < gradients_.size(); ++i)
    changed += gradient_of((*parameters_)[i]) == gradients_[i] ? 0 : 1;
  return changed;
}

void StepMark::drop_new_gradients() const {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].tensor == nullptr) (*parameters_)[i].mutable_grad().reset();
  }
}

bool RequestedBytes::matches(std::int64_t actual) const {
  const double difference =
      static_cast<double>(is_segment ? segment_bytes(actual) : actual) - bytes;
  return bytes == 0 || (difference >= -error && difference <= error);
}

// LibTorch's CPU allocator writes "you tried to allocate 123 bytes", and its GPU allocator writes
// "Tried to allocate 20.00 MiB".
RequestedBytes requested_bytes(const std::exception& error) {
  const std::string text = message_without_backtrace(error);
  constexpr std::string_view kPrefix = "ried to allocate ";
  const std::size_t at = text.find(kPrefix);
  if (at == text.npos) return {};
  const std::string_view rest = std::string_view(text).substr(at + kPrefix.size());
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const auto number = parse_number<double>(rest.substr(0, end));
  if (!number) return {};
  const std::string_view unit = rest.substr(end);
  const double scale = starts_with(unit, " GiB")   ? 1 << 30
                       : starts_with(unit, " MiB") ? 1 << 20
                       : starts_with(unit, " KiB") ? 1 << 10
                                                   : 1;
  return {
      .bytes = *number * scale, .error = scale == 1 ? 0 : 0.005 * scale, .is_segment = scale != 1};
}

namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kMaxTime{60};  // for all dry runs of one fork

// Runs the step dry under an Anatomy and returns its report.
Report report_of(const ExplainableStep& step, const AnatomyOptions& options, std::int64_t rows,
                 int times) {
  Anatomy anatomy = step.anatomy(options);
  for (int i = 0; i < times; ++i) step.step(rows);
  return anatomy.report();
}

class Explanation {
 public:
  Explanation(const ExplainableStep& step, const StepMark& mark, const StepProgress& failed,
              const RequestedBytes& requested)
      : step_(step), mark_(mark), failed_(failed), requested_(requested) {}

  // Returns three lines: the place, what would have fitted, and the bytes that were available.
  // Returns an empty text if the place is unknown.
  std::string text() const {
    const std::optional<OutOfMemory> place = find_failure();
    if (!place) return "";
    const std::int64_t capacity = total(place->allocated);
    return str(to_text(*place), "\n", rows_that_fit(capacity), "\n", capacity);
  }

  // Returns the bytes that the step needs with this number of rows.
  std::int64_t needed(std::int64_t rows) const {
    mark_.drop_new_gradients();
    // The first step may create the optimizer's states, so that only the second one starts with
    // them.
    return report_of(step_, {.steps = 0, .operations = false}, rows, 2).memory.peak;
  }

 private:
  std::optional<OutOfMemory> find_failure() const {
    for (const bool exactly : {true, false}) {
      mark_.drop_new_gradients();
      const StepMark begin(step_.parameters);
      const auto exceeds_limit = [&](const ObservedAllocation& allocation) {
        return requested_.matches(allocation.bytes) &&
               (!exactly || begin.may_have_reached(failed_));
      };
      const Report report = report_of(
          step_, {.steps = 0, .operations = false, .exceeds_limit = exceeds_limit}, step_.rows, 1);
      if (report.memory.out_of_memory) return report.memory.out_of_memory;
    }
    return std::nullopt;
  }

  // The capacity is the memory that was in use when memory ran out, because this amount certainly
  // fitted.
  std::string rows_that_fit(std::int64_t capacity) const {
    const auto end = SteadyClock::now() + kMaxTime / 2;
    const FittingRows found = find_fitting_rows(
        step_.rows, capacity, [this](std::int64_t rows) { return needed(rows); },
        [end] { return SteadyClock::now() < end; });
    const std::string available = human_bytes(capacity);
    if (found.rows > 0) {
      return str("a batch of ", count_text(found.rows, "row"), " would have fitted (",
                 human_bytes(found.bytes), " of the ", available, " that were available)");
    }
    return found.is_complete()
               ? str("not even one row fits the ", available, " that were available")
               : str("fewer than ", found.too_many, " rows may fit the ", available,
                     " that were available");
  }

  const ExplainableStep& step_;
  const StepMark& mark_;
  const StepProgress failed_;
  const RequestedBytes requested_;
};

// Returns the device of all parameters, or nothing if a dry run cannot simulate it. CUDA does not
// work in a fork, so only one GPU is simulated there.
std::optional<at::Device> device_to_simulate(const std::vector<at::Tensor>& parameters) {
  const at::Device device = parameters.empty() ? at::Device(at::kCPU) : parameters[0].device();
  const bool is_one_device =
      std::all_of(parameters.begin(), parameters.end(),
                  [&](const at::Tensor& each) { return each.device() == device; });
  if (!is_one_device || !device_of(device).traits().can_be_simulated || device.index() > 0)
    return std::nullopt;
  return device;
}

// The dry runs of one explanation.
class DryRunFork {
 public:
  explicit DryRunFork(at::Device device) {
    if (device.is_cpu()) return;
    gpu_ = local_gpu(device);
    install_engine();  // starts the threads of LibTorch's engine, which a fork cannot do
  }

  // Runs a function dry in a fork of this process. Returns the text of the function, or nothing if
  // it fails or takes too long.
  std::optional<std::string> run(const std::function<std::string()>& function) const;

 private:
  void run_dry(const std::function<void()>& function) const {
    if (!gpu_) {
      const DryRun dry;
      return function();
    }
    simulate_gpus_without_cuda();
    reset_engines();
    const DryRun dry(*gpu_);
    function();
  }

  std::optional<Gpu> gpu_;
};

std::optional<std::string> DryRunFork::run(const std::function<std::string()>& function) const {
  const TemporaryDirectory scratch("hasten-out-of-memory");
  const auto file = scratch.path() / "text";
  const int threads = at::get_num_threads();
  pause_openmp();
  ChildProcess process({.leads_group = true, .skips_handlers = true}, [&] {
    try {
      at::set_num_threads(threads);
      allow_addresses_without_pages();
      run_dry([&] { write_file_atomically(file, function()); });
    } catch (...) {  // then there is no file
    }
  });
  if (process.error() != 0) return std::nullopt;
  const auto end = SteadyClock::now() + kMaxTime;
  while (process.state() == ChildState::running) {
    if (SteadyClock::now() > end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  if (!std::filesystem::exists(file)) return std::nullopt;
  return read_file(file);
}

// True if the step can be repeated in a dry run, in a fork of this process.
bool can_explain(const ExplainableStep& step) {
  return !DryRun::active() && !is_added_device_open() && step.anatomy && step.step;
}

}  // namespace

FailureText explain_failure(const ExplainableStep& step, const StepMark& mark,
                            const RequestedBytes& requested) {
  const std::optional<at::Device> device = device_to_simulate(step.parameters);
  if (!can_explain(step) || !device) return {};
  const Explanation explanation(step, mark, mark.progress(), requested);
  FailureText text;
  try {
    const DryRunFork fork(*device);
    const auto found = fork.run([&] { return explanation.text(); });
    const std::vector<std::string> lines = split(found.value_or(""), '\n');
    if (lines.size() != 3) return {};
    text = {.place = lines[0], .fits = lines[1]};
    const std::int64_t capacity = parse_number<std::int64_t>(lines[2]).value();
    for (const MemorySavingChange& each : step.memory_saving_changes) {
      const auto needed = fork.run([&] {
        each.change();
        return str(explanation.needed(step.rows));
      });
      if (!needed) continue;
      const std::int64_t bytes = parse_number<std::int64_t>(*needed).value();
      text.fits += str("; ", each.name, " the step of ", step.rows, " rows needs ",
                       human_bytes(bytes), bytes <= capacity ? " and would have fitted" : "");
    }
  } catch (const std::exception&) {  // there may be too little memory for an explanation
  }
  return text;
}

}  // namespace anatomy

bool is_out_of_memory(const std::exception& error) { return is_memory_failure(error); }

void run_explained(const ExplainableStep& step) {
  const anatomy::StepMark mark(step.parameters);
  std::string text;
  anatomy::RequestedBytes requested;
  try {
    return step.step(step.rows);
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    requested = anatomy::requested_bytes(error);
    text = short_message(error);
  }
  const anatomy::FailureText why = anatomy::explain_failure(step, mark, requested);
  throw MemoryError(
      "anatomy.out-of-memory",
      {.what =
           why.place.empty() ? str("out of memory in a step of ", step.rows, " rows") : why.place,
       .got = text,
       .hint = why.fits.empty() ? "use smaller batches" : why.fits});
}

}  // namespace hasten
