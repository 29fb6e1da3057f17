// A recorder of graphs for tests on the CPU. It records the operators that the work calls. A replay
// calls them again with the same tensors and numbers, as a CUDA graph starts its kernels with the
// recorded arguments. A number that was passed by value therefore keeps its old value in every
// replay.
//
//   OperatorRecorder recorder;
//   const GraphRecorder::Recording made = recorder.record([&] { y.add_(x, 2.0); });
//   made.graph->replay();
//
// Operators run while they are recorded, because the work needs the shapes of their results. After
// the recording, the tensors get their previous contents back.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "autograd/operator_calls.h"
#include "device/device.h"
#include "device/graph_recorder.h"

namespace hasten::operator_graphs {

struct Call {
  c10::OperatorHandle op;
  torch::jit::Stack arguments, results;
};

inline void for_tensors(const c10::IValue& value,
                        const std::function<void(const at::Tensor&)>& body) {
  if (value.isTensor() && value.toTensor().defined()) body(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) body(each);
  }
}

// Calls the operators again, and copies their results to the recorded results.
inline void repeat(const std::vector<Call>& calls) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const Call& each : calls) {
    torch::jit::Stack stack = each.arguments;
    each.op.callBoxed(stack);
    for (std::size_t i = 0; i < stack.size(); ++i) {
      std::vector<at::Tensor> made;
      for_tensors(stack[i], [&](const at::Tensor& tensor) { made.push_back(tensor); });
      std::size_t next = 0;
      for_tensors(each.results[i], [&](const at::Tensor& recorded) {
        const at::Tensor& tensor = made.at(next++);
        TORCH_CHECK(tensor.sizes() == recorded.sizes(), "a replay of ", each.op.schema().name(),
                    " has another shape");
        if (!tensor.is_alias_of(recorded)) recorded.copy_(tensor);
      });
    }
  }
}

class OperatorGraph final : public RecordedGraph {
 public:
  explicit OperatorGraph(std::vector<Call> calls, std::int64_t& replays)
      : calls_(std::move(calls)), replays_(replays) {}
  void replay() override {
    ++replays_;
    repeat(calls_);
  }

 private:
  const std::vector<Call> calls_;
  std::int64_t& replays_;
};

// Restores the content of the storages that operators write to.
class WrittenStorages {
 public:
  void keep(const at::Tensor& tensor) {
    const c10::Storage& storage = tensor.storage();
    auto [found, is_new] = kept_.try_emplace(storage.unsafeGetStorageImpl(), storage);
    if (!is_new) return;
    const auto* const data = static_cast<const char*>(storage.data());
    found->second.bytes.assign(data, data + storage.nbytes());
  }
  void restore() const {
    for (const auto& [key, each] : kept_) {
      if (!each.bytes.empty())
        std::memcpy(each.storage.mutable_data(), each.bytes.data(), each.bytes.size());
    }
  }

 private:
  struct Kept {
    explicit Kept(c10::Storage given) : storage(std::move(given)) {}
    c10::Storage storage;
    std::vector<char> bytes;
  };
  std::map<const c10::StorageImpl*, Kept> kept_;
};

class CallRecorder final : public OperatorInterceptor {
 public:
  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
            torch::jit::Stack* stack) override {
    const auto& schema = op.schema();
    TORCH_CHECK(schema.name() != "aten::_local_scalar_dense",
                "a number is read while a graph is recorded");
    const std::size_t count = schema.arguments().size();
    Call call{.op = op, .arguments = {stack->end() - std::ptrdiff_t(count), stack->end()}};
    for (std::size_t i = 0; i < count; ++i) {
      const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for_tensors(call.arguments[i], [&](const at::Tensor& tensor) { written.keep(tensor); });
    }
    {
      const InterceptionScope kernels_of_the_call(nullptr);
      call_operator_kernel(op, keys, stack);
    }
    call.results = {stack->end() - std::ptrdiff_t(schema.returns().size()), stack->end()};
    calls.push_back(std::move(call));
  }

  std::vector<Call> calls;
  WrittenStorages written;
};

// The numbers of recordings and of replays.
struct Counts {
  std::int64_t recordings = 0, replays = 0;
};

class OperatorRecorder final : public GraphRecorder {
 public:
  explicit OperatorRecorder(Counts& counts) : counts_(counts) {}

  Recording record(const std::function<void()>& work) override {
    CallRecorder recorder;
    std::string failure;
    try {
      const InterceptionScope scope(&recorder);
      work();
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    recorder.written.restore();
    if (!failure.empty()) return {.failure = failure};
    ++counts_.recordings;
    return {.graph = std::make_unique<OperatorGraph>(std::move(recorder.calls), counts_.replays)};
  }

 private:
  Counts& counts_;
};

// A device that runs on the CPU and has the properties in which a GPU differs from the CPU.
class GraphDevice final : public Device {
 public:
  GraphDevice()
      : Device(at::kCPU, {.defers_scalar_reads = true,
                          .has_sparse_tensors = false,
                          .adamw = AdamWKernel::fused}) {}

  bool is_available() const override { return true; }
  std::vector<NamedGenerator> generators() const override {
    return {{.name = "cpu", .generator = at::detail::getDefaultCPUGenerator()}};
  }
  GraphSupport graphs(int) const override {
    return {.recorder = std::make_unique<OperatorRecorder>(counts)};
  }
  MemoryFigures memory(int) const override { return {.used = total - unused, .total = total}; }
  std::optional<AllocatedBytes> allocated(int) const override {
    return AllocatedBytes{.current = peak, .peak = peak};
  }

  mutable Counts counts;
  // The total and the unused memory of the device, and the peak memory of the process's tensors.
  std::int64_t total = 1000, unused = 600, peak = 400;
};

}  // namespace hasten::operator_graphs
