// File: anatomy/recorder.h (internal)
// Receives callbacks from LibTorch's allocator, operators and autograd, and records the events in
// the ledger and in a table of operations. Thread rule: as for Anatomy.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "anatomy/gpu_speed.h"
#include "anatomy/ledger.h"
#include "anatomy/modules.h"
#include "anatomy/op_rules.h"
#include "anatomy/textbook.h"
#include "hasten/anatomy/anatomy.h"

namespace hasten {

class Anatomy::Recorder : public StepObserver, public std::enable_shared_from_this<Recorder> {
 public:
  explicit Recorder(AnatomyOptions options);
  ~Recorder() override;
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void start();
  void stop();
  bool listening() const { return listening_; }
  // Returns the layer that the program is in, for messages. Returns "" outside of layers and if no
  // Recorder listens.
  static std::string current_module();
  anatomy::Report report();

  void on_model(torch::nn::Module& module) override;
  void on_optimizer(const std::shared_ptr<torch::optim::Optimizer>& optimizer) override;
  void on_batch(const std::vector<at::Tensor>& tensors) override;
  void on_functionality(const std::vector<at::Tensor>& tensors);
  void enter(StepPhase phase) override;
  void leave(StepPhase phase) override;
  void on_step() override;

 private:
  struct Frame;  // an operator or a backward node that is running
  struct Allocations;
  // The facts about an operator.
  struct Operator {
    std::string name;
    std::int32_t number = 0;
    const anatomy::OpRule* rule = nullptr;
    bool views = false;                  // returns a view of its argument and computes nothing
    bool has_cpu_kernel = false;         // has its own kernel, which may call other operators
    bool calls_adapters = false;         // has a kernel for weights with adapters
    std::vector<bool> writes;            // by argument: true if it is written
    std::vector<bool> only_writes;       // by argument: true if it is written but not read
    std::vector<bool> returns_argument;  // by result: true for an argument or a view of one
    mutable bool uncounted = false;      // no formula applies to some of its calls
  };
  using Key = std::tuple<const Operator*, std::int32_t, anatomy::Phase>;

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function);
  static void end(const at::RecordFunction& function, at::ObserverContext* context);
  std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function);
  std::unique_ptr<at::ObserverContext> begin_node(const at::RecordFunction& function);
  void end_node(Frame& frame);
  void end_operator(const at::RecordFunction& function, Frame& frame);
  // Records what the call reads and writes, and sets the rule that applies to it. Returns the layer
  // that owns one of its operands, or -1.
  std::int32_t record_operands(c10::ArrayRef<const c10::IValue> inputs, bool runs_layers,
                               Frame& frame);
  // Adds the operations and the bytes of a call to its row.
  void count_work(const at::RecordFunction& function, Frame& frame, anatomy::Operation& row);
  std::int32_t producing_layer(c10::ArrayRef<const c10::IValue> operands, const Operator& op) const;
  const Operator& operator_for(const at::RecordFunction& function);

  void on_allocated(void* pointer, std::int64_t bytes);
  void on_reserved(std::int64_t bytes);
  void note_if_out_of_memory(std::int64_t bytes);
  void on_saved(const at::Tensor& tensor);
  std::vector<at::Tensor> parameters() const;
  void add_existing(const at::Tensor& tensor, anatomy::Component component, std::int32_t module);
  void assign_gradients();
  void assign_states();
  void fill_memory(anatomy::Memory& memory) const;
  // The blocks that were alive after an event, by layer and by size.
  struct Holders {
    std::vector<anatomy::ModuleMemory> modules;
    std::vector<anatomy::LargeBlock> largest;
  };
  Holders holders_after(std::int64_t event) const;
  std::string operation_name(const anatomy::CallSite& site) const;
  void fill_out_of_memory(anatomy::Memory& memory) const;
  void fill_history(anatomy::Memory& memory) const;
  void fill_timeline(anatomy::Memory& memory) const;
  void fill_operations(anatomy::Report& report) const;
  void fill_gpu(anatomy::Report& report) const;
  // Sets the roofs of a GPU whose data sheet is known.
  void fill_roofs(anatomy::Report& report) const;
  void switch_device(at::Device device);
  // Returns whether the device works later than the host submits the work, as a GPU does.
  bool runs_behind_host() const;
  void set_phase(anatomy::Phase phase);
  anatomy::CallSite call_site() const;

  static Recorder* active_;

  AnatomyOptions options_;
  bool listening_ = false, dry_ = false;
  std::optional<c10::DebugInfoGuard> allocations_;
  at::CallbackHandle callback_ = 0;

  anatomy::Ledger ledger_;
  anatomy::Modules modules_;
  // The key is the address of the operator's name.
  std::unordered_map<const void*, std::unique_ptr<Operator>> operators_;
  std::vector<const Operator*> numbered_;
  std::map<Key, anatomy::Operation> rows_;
  // The figures of a row at one moment: before the first forward pass, at the end of the last step,
  // or at the end of the step before it.
  struct RowFigures {
    double flops = 0, half_flops = 0;
    std::int64_t bytes = 0;
    double kernel_seconds = 0, host_seconds = 0;
  };
  static RowFigures figures(const anatomy::Operation& row);
  std::map<Key, RowFigures> figures() const;
  std::map<Key, RowFigures> figures_before_, figures_after_, figures_before_last_;
  struct Call {
    const anatomy::Operation* row;
    std::chrono::steady_clock::time_point began;
    std::chrono::steady_clock::duration took;
  };
  std::vector<Call> calls_;
  // Weak references, because the Recorder must not keep alive what it measures.
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> parameters_;
  std::vector<std::weak_ptr<torch::optim::Optimizer>> optimizers_;
  std::vector<std::optional<anatomy::TextbookStates>> textbooks_;  // by optimizer

  anatomy::Phase phase_ = anatomy::Phase::other;
  bool has_float16_ = false;                    // an operand was float16
  std::optional<anatomy::GpuSpeed> gpu_speed_;  // set if a dry run simulates a GPU
  Frame* top_ = nullptr;
  std::int64_t call_count_ = 0;                           // number of operator calls so far
  std::int64_t out_of_memory_event_ = -1;                 // the event for which memory ran out
  std::int64_t optimizer_began_ = 0;                      // the first event of the optimizer's step
  std::int64_t live_before_ = 0;                          // bytes in use at the first forward pass
  std::int64_t parameter_count_ = 0, trained_count_ = 0;  // numbers in the parameters
  at::Device device_ = at::kCPU;                          // the device of the model
  std::int64_t reserved_ = 0, reserved_at_peak_ = 0, reserved_now_ = 0;
  std::int64_t steps_ = 0, samples_ = 0, tokens_ = 0;
  std::int64_t samples_in_steps_ = 0, tokens_in_steps_ = 0;
  std::chrono::steady_clock::time_point began_;
  std::optional<std::chrono::steady_clock::time_point> first_phase_began_;
  std::chrono::steady_clock::time_point last_step_ended_;
};

}  // namespace hasten
