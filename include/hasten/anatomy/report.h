// File: hasten/anatomy/report.h
// What an anatomy found, as plain data, and the forms it is shown in.
//
//   Report report = anatomy.report();
//   std::cout << to_text(report);
//   write_file_atomically("anatomy.json", to_json(report));
//
// Units: bytes, seconds, FLOP (a multiplication with an addition counts as two). Thread rule:
// values and pure functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hasten/anatomy/component.h"
#include "hasten/anatomy/roofs.h"

namespace hasten::anatomy {

struct TimelinePoint {
  double seconds = 0;  // since the anatomy began
  ComponentBytes bytes{};
};

struct ModuleMemory {
  std::string module;  // path in the model; empty: outside of any module
  ComponentBytes at_peak{};
};

struct LargeBlock {
  std::int64_t bytes = 0;
  Component component = Component::unknown;
  Phase phase = Phase::other;  // in which it was allocated
  std::string module, operation;
};

// What a GPU holds beside the tensors' bytes.
struct GpuMemory {
  std::string title;                  // NVIDIA's name
  std::int64_t capacity = 0;          // of the GPU, as CUDA tells; 0: not known
  std::int64_t context = 0;           // taken outside of LibTorch's allocator: context, kernels
  std::int64_t reserved = 0;          // the most that allocator held of the GPU at once
  std::int64_t reserved_at_peak = 0;  // when the tensors' bytes were most; less the peak: unused
  std::int64_t missing = 0;           // bytes that the GPU does not have; predictions alone
};

// The bytes that an optimizer keeps for each float parameter, according to the textbook.
struct TextbookStates {
  std::string optimizer;  // AdamW, SGD with momentum, ...
  double bytes = 0;       // a parameter that it trains
  friend bool operator==(const TextbookStates&, const TextbookStates&) = default;
};

// Of one device: the model's.
struct Memory {
  bool known = true;  // false: nothing is heard of a TPU's; but the parameters all is zero then
  std::int64_t peak = 0;
  ComponentBytes at_peak{};
  ComponentBytes most{};  // of each by itself, whenever that was
  Phase peak_phase = Phase::other;
  std::string peak_operation, peak_module;
  bool peak_inside_kernel = false;          // of memory that the operator gave back itself
  std::int64_t before = 0;                  // live when the anatomy began
  std::int64_t after = 0;                   // live when it ended
  std::vector<std::int64_t> peak_in_phase;  // by Phase
  std::int64_t parameters = 0;              // numbers, not bytes
  std::int64_t trained_parameters = 0;
  std::vector<TextbookStates> textbook_states;  // by optimizer
  std::int64_t unknown_optimizers = 0;          // of which no textbook tells the states
  std::vector<ModuleMemory> modules;            // by descending total
  std::vector<LargeBlock> largest;              // at the peak, by descending size
  std::vector<TimelinePoint> timeline;
  std::optional<GpuMemory> gpu;  // where the model is on one
};

struct Operation {
  std::string name;  // aten::addmm, hasten::adamw, ...
  std::string module;
  OperationGroup group = OperationGroup::none;
  Phase phase = Phase::other;
  std::int64_t count = 0;
  double flops = 0;
  double half_flops = 0;  // of them in 16-bit numbers
  std::int64_t bytes_read = 0, bytes_written = 0;
  double seconds = 0;  // what it calls is not counted again
  // What of it came before the first forward pass or after the last step, as in Report::seconds.
  struct Outside {
    double flops = 0, half_flops = 0;
    std::int64_t bytes = 0;
  } outside;
};

// One call of an operator.
struct Span {
  std::int32_t operation = 0;     // place in Report::operations
  double began = 0, seconds = 0;  // since the anatomy began; what it calls lies inside
};

// The same step with one thing changed.
struct Alternative {
  std::string name;
  std::int64_t needed = 0;  // needed_bytes of it
  std::string stopped;      // why that is not known; empty: it is
};

struct Report {
  std::string device;
  bool dry = false;          // predicted: no memory was taken and nothing computed
  std::int64_t steps = 0;    // optimizer steps inside
  double seconds = 0;        // from the first batch's forward to the end of the last step
  std::int64_t samples = 0;  // rows of the batches, where there are steps: of those in them
  std::int64_t tokens = 0;   // numbers in their input_ids, or 0
  Memory memory;
  std::vector<Operation> operations;         // by descending time
  std::vector<Span> spans;                   // in the order they ended; the first million
  std::vector<std::string> without_formula;  // operators whose FLOP are not counted
  Roofs roofs;                               // of this machine or GPU; zeros: not measured
  std::vector<Alternative> alternatives;
  std::vector<std::string> notes;  // what a reader should know
};

// One line of the sums over operations.
struct OperationTotal {
  std::int64_t count = 0;
  double flops = 0, seconds = 0;
  std::int64_t bytes_read = 0, bytes_written = 0;

  // Of an Operation or another total.
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
OperationTotal total_of(const Report& report, OperationGroup group);
OperationTotal total_of(const Report& report, Phase phase);

// What the textbook gives a parameter of a float model: 4 bytes of weights and of gradients, and
// the states of the optimizer that ran. Where several ran and their figures differ, the text names
// each and there is no single figure.
struct Textbook {
  std::optional<double> bytes;
  std::string text;  // "8 B (AdamW)"; empty: it depends, or is not known
};
Textbook textbook(const Memory& memory, Component component);

// What the device has to have: the peak, and on a GPU what the allocator and the context hold too.
std::int64_t needed_bytes(const Memory& memory);

// The roofs of what made the steps, measured; of the CPU alone. A prediction has its GPU's.
void add_roofs(Report& report);

// Seconds of a step in which every operator runs at its roof: no step is faster. 0: no roofs.
double least_step_seconds(const Report& report);
// How many times what the forward passes computed the backward passes did; 0: there was none.
double backward_to_forward(const Report& report);
// What of the roof of its types the forward and backward passes reached, 0 to 1 (MFU); 0: unknown.
double model_flops_utilization(const Report& report);

// The table people read in a terminal.
std::string to_text(const Report& report);
// Beside what is needed as it is.
std::string to_text(const std::vector<Alternative>& alternatives, std::int64_t now);
// Everything, for programs; the keys are the fields' names.
std::string to_json(const Report& report);
// One page that needs nothing else: memory over time, a roofline, the layers as a tree.
std::string to_html(const Report& report);
// For Perfetto or chrome://tracing: each operator's call, and a lane of memory for each component.
std::string to_trace(const Report& report);
// By the file's ending: .trace.json, .json, .html, anything else as text.
void write_report(const std::filesystem::path& file, const Report& report);

}  // namespace hasten::anatomy
