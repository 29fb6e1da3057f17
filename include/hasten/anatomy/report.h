// File: hasten/anatomy/report.h
// The results of an Anatomy as plain data, and the forms in which they are shown.
//
//   const anatomy::Report report = accelerator.anatomy().report();
//   std::cout << to_text(report);
//   write_file_atomically("anatomy.json", to_json(report));
//
// Units: bytes, seconds, FLOP (a multiplication with an addition counts as two). The peak is the
// largest number of live bytes since the first phase of the first step began. Throws IoError "io.*"
// from write_report only. Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hasten/anatomy/detail/component.h"
#include "hasten/anatomy/detail/roofs.h"
#include "hasten/anatomy/detail/step_comparison.h"
#include "hasten/base/detail/export.h"

namespace hasten::anatomy {

// Live bytes at one moment.
struct TimelinePoint {
  double seconds = 0;  // Since the anatomy began.
  ComponentBytes bytes{};
};

// Bytes that one layer held at the peak.
struct ModuleMemory {
  std::string module;  // Path in the model; empty: outside of any module.
  ComponentBytes at_peak{};
};

// A block of memory that was live at the peak.
struct LargeBlock {
  std::int64_t bytes = 0;
  Component component = Component::unknown;
  Phase phase = Phase::other;  // The phase that allocated it.
  // The layer and the operator that allocated it; empty if unknown.
  std::string module, operation;
};

// The allocation for which memory ran out, and what was allocated just before it.
struct OutOfMemory {
  std::int64_t requested = 0;  // Bytes of the allocation.
  Component component = Component::unknown;
  Phase phase = Phase::other;
  std::string module, operation;      // Empty: unknown.
  ComponentBytes allocated{};         // Just before it, by component.
  std::vector<ModuleMemory> modules;  // By descending total.
  std::vector<LargeBlock> largest;    // By descending size; at most 20.
};

// Every allocation of the recording, for a memory snapshot. Names of layers and operators are
// indices in `names`; -1: unknown.
struct MemoryHistory {
  struct Block {
    std::int64_t bytes = 0;
    Component component = Component::unknown;
    Phase phase = Phase::other;
    std::int32_t module = -1, operation = -1;
    std::int64_t stream = 0;  // The GPU's stream that uses the block; 0 is the default stream.
  };
  struct Event {
    double seconds = 0;  // Since the anatomy began.
    std::int32_t block = 0;
    bool is_allocation = true;
  };
  std::vector<std::string> names;
  std::vector<Block> blocks;
  std::vector<Event> events;
  std::int64_t out_of_memory_event = -1;  // The event for which memory ran out; -1: none.
};

// The memory of a GPU beyond the bytes of tensors.
struct GpuMemory {
  std::string title;          // NVIDIA's name of the GPU; empty unless predicted.
  std::int64_t capacity = 0;  // All memory of the GPU; 0: unknown.
  // In use outside of LibTorch's allocator: the CUDA context, loaded kernels and libraries.
  // A measured value includes other processes on the GPU; it is 0 without NVML.
  std::int64_t context = 0;
  std::int64_t reserved = 0;          // The most that LibTorch's allocator held at once.
  std::int64_t reserved_at_peak = 0;  // Held at the peak; the bytes beyond `peak` were unused.
  std::int64_t missing = 0;           // In a prediction: bytes that the GPU lacks.
};

// The bytes that an optimizer keeps per float parameter, according to the textbook.
struct TextbookStates {
  std::string optimizer;  // "AdamW", "SGD with momentum", ...
  double bytes = 0;       // Per parameter that it trains.
  friend bool operator==(const TextbookStates&, const TextbookStates&) = default;
};

// The memory of the device that the model is on.
struct Memory {
  // False on a TPU, whose memory use LibTorch does not report. All bytes are 0 then; the numbers of
  // parameters are known nevertheless.
  bool known = true;
  std::int64_t peak = 0;
  ComponentBytes at_peak{};
  // The most bytes of each component. Components may reach their maxima at different times.
  ComponentBytes max_bytes{};
  Phase peak_phase = Phase::other;
  std::string peak_operation, peak_module;
  // True if the peak includes memory that the operator freed in the same call, such as a workspace.
  bool peak_inside_kernel = false;
  std::int64_t before = 0;                  // Live bytes when the first phase began.
  std::int64_t after = 0;                   // Live bytes when the recording ended.
  std::vector<std::int64_t> peak_in_phase;  // The most live bytes in each phase, indexed by Phase.
  // Elements of the parameters; tied ones count once.
  std::int64_t parameters = 0;
  // How many of them require gradients.
  std::int64_t trained_parameters = 0;
  std::vector<TextbookStates> textbook_states;  // One for each optimizer that the textbook covers.
  std::int64_t unknown_optimizers = 0;          // How many optimizers it does not cover.
  std::vector<ModuleMemory> modules;            // By descending total.
  std::vector<LargeBlock> largest;              // At the peak, by descending size; at most 20.
  // Time is divided into at most about 2,000 intervals. Each point is the moment at which an
  // interval used the most memory.
  std::vector<TimelinePoint> timeline;
  std::optional<GpuMemory> gpu;  // If the model is on a GPU.
  // Set if a prediction exceeded the GPU's memory, or if AnatomyOptions::exceeds_limit returned
  // true.
  std::optional<OutOfMemory> out_of_memory;
  MemoryHistory history;
};

// All calls of one operator in one layer and phase.
struct Operation {
  std::string name;  // aten::addmm, hasten::adamw, ...
  std::string module;
  OperationGroup group = OperationGroup::none;
  Phase phase = Phase::other;
  std::int64_t count = 0;
  double flops = 0;
  double half_flops = 0;  // The part of `flops` that was computed in 16-bit numbers.
  std::int64_t bytes_read = 0, bytes_written = 0;
  double seconds = 0;  // Excludes the time of nested operators.
  // In a prediction for a GPU, for the last step: the time that the kernels take, and the time that
  // the host takes to start them.
  double kernel_seconds = 0, host_seconds = 0;
  // The part that lies outside of Report::seconds: before the first phase, or after the last step.
  struct Outside {
    double flops = 0, half_flops = 0;
    std::int64_t bytes = 0;
  } outside;
};

// One call of an operator.
struct Span {
  std::int32_t operation = 0;  // Index in Report::operations.
  // `began` counts from the start of the anatomy. `seconds` includes nested calls.
  double began = 0, seconds = 0;
};

struct Report {
  std::string device;
  bool dry = false;        // A prediction: no memory was allocated and nothing computed.
  std::int64_t steps = 0;  // Optimizer steps recorded.
  // From the first phase to the end of the last step, on the host's clock. If the model is on a
  // GPU, the recording waits for the GPU at both moments, so the time is that of the GPU's work. A
  // recording that ends before AnatomyOptions::steps has not waited for the last step: the end of
  // the GPU's work is then unknown, the time is 0, and a note says so. Also 0 without steps. In a
  // prediction this is the time of the dry run itself.
  double seconds = 0;
  // Rows of the batches up to the last step, or of all batches if there was no step.
  std::int64_t samples = 0;
  // Elements of the first 2-D integer tensor (input_ids) of each of these batches, or 0.
  std::int64_t tokens = 0;
  Memory memory;
  std::vector<Operation> operations;  // By descending time.
  std::vector<Span> spans;            // In the order in which the calls ended; at most a million.
  std::vector<std::string> without_formula;  // Operators with calls whose FLOP are unknown.
  Roofs roofs;                               // Those of the machine or GPU; zeros: not known.
  bool half_is_float16 = false;              // The 16-bit numbers were float16, not bfloat16.
  // Predictions of the same step with one change each; unset unless they were requested.
  std::optional<StepComparison> what_if;
  std::vector<std::string> notes;  // Remarks for the reader; one sentence each.
};

// The sum of several operations.
struct OperationTotal {
  std::int64_t count = 0;
  double flops = 0, seconds = 0;
  std::int64_t bytes_read = 0, bytes_written = 0;

  // Adds an Operation or another total.
  template <class Counted>
  OperationTotal& operator+=(const Counted& each) {
    count += each.count;
    flops += each.flops;
    seconds += each.seconds;
    bytes_read += each.bytes_read;
    bytes_written += each.bytes_written;
    return *this;
  }
};
HASTEN_API OperationTotal total_of(const Report& report, OperationGroup group);
HASTEN_API OperationTotal total_of(const Report& report, Phase phase);

// The textbook's bytes per parameter of a float model: 4 for weights, 4 for gradients, and the
// states of the optimizers that ran. If these differ or one is unknown, `text` lists each and
// `bytes` is unset. A model that was not trained has a figure for its weights only.
struct Textbook {
  std::optional<double> bytes;
  std::string text;  // "8 B (AdamW)"; empty: it depends, or is unknown.
};
HASTEN_API Textbook textbook(const Memory& memory, Component component);

// The memory that the device must have: the peak; on a GPU what the allocator held, plus the
// context.
HASTEN_API std::int64_t needed_bytes(const Memory& memory);

// Measures this machine and sets Report::roofs, if the steps ran on its CPU; otherwise does
// nothing. The report of a GPU that hasten knows (hasten/machine/gpus.h) has the peaks of its data
// sheet already.
HASTEN_API void add_roofs(Report& report);

// The seconds that a step takes if every operator runs at its roof, which is a lower bound for any
// program. 0 if the roofs or steps are unknown.
HASTEN_API double min_step_seconds(const Report& report);
// The predicted time of a step on a GPU.
struct StepTime {
  double seconds = 0;
  // In nine of ten cases the measured time is expected within this share of `seconds`, on either
  // side (docs/gpu.md).
  double uncertainty = 0;
  double kernels = 0, host = 0;  // The seconds in which the GPU and the host work.
};
// Adds up the time of the kernels of the last step, and the time that the host takes to start them.
// A step takes the longer of the two: the host does not wait for the GPU and may be phases ahead.
// Returns nothing unless the report is a prediction for a GPU.
HASTEN_API std::optional<StepTime> expected_step_time(const Report& report);
// The kernels in which attention ran on a GPU, with the number of their calls: "cudnn", "flash",
// "efficient" (the memory-efficient kernel), or "math" (composed of other operators). The kernels
// of the backward pass have the same names, and are not counted. LibTorch chooses the kernel by
// the GPU, the type, the head size, the mask and dropout.
HASTEN_API std::map<std::string, std::int64_t> attention_kernels(const Report& report);
// The FLOP of the backward passes divided by those of the forward passes, or 0 without a forward
// pass.
HASTEN_API double backward_to_forward_ratio(const Report& report);
// The model FLOPs utilization (MFU), 0 to 1: the rate of the forward and backward passes as a share
// of the roof of their number types. 0 for a prediction or without roofs.
HASTEN_API double model_flops_utilization(const Report& report);

// Tables for a terminal.
HASTEN_API std::string to_text(const Report& report);
// JSON for programs; the keys are the names of the fields.
HASTEN_API std::string to_json(const Report& report);
// A self-contained HTML page: memory over time, a roofline, and the layers as a tree.
HASTEN_API std::string to_html(const Report& report);
// A trace for Perfetto or chrome://tracing: a lane of operator calls for each phase, and the memory
// by component as a counter.
HASTEN_API std::string to_trace(const Report& report);
// One sentence: the component, layer and operation for which memory ran out, and the largest
// holders by component and layer.
HASTEN_API std::string to_text(const OutOfMemory& failure);
// A memory snapshot that PyTorch's viewer opens (pytorch.org/memory_viz): a pickle as
// torch.cuda.memory._dump_snapshot writes it. The frames of an allocation are its operator and its
// layers, the innermost first. Addresses are simulated: on the CPU each allocation is a segment, on
// a GPU segments follow the rules of LibTorch's caching allocator.
HASTEN_API std::string to_snapshot(const Report& report);
// Writes the report in the format that the file's extension selects: .trace.json, .json, .html,
// .pickle (a memory snapshot), or text for any other.
HASTEN_API void write_report(const std::filesystem::path& file, const Report& report);

}  // namespace hasten::anatomy
