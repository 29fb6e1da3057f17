#include "process/backend/observed_backend.h"

#include <utility>

namespace hasten {
namespace {

using namespace c10d;
using WorkPointer = c10::intrusive_ptr<Work>;
using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<std::vector<at::Tensor>>;

// Returns the name of a reduction, which is empty for a sum with or without a factor.
const char* name_of(const ReduceOp& operation) {
  switch (static_cast<ReduceOp::RedOpType>(operation)) {
    case ReduceOp::SUM:
    case ReduceOp::PREMUL_SUM:
      return "";
    case ReduceOp::AVG:
      return "mean";
    case ReduceOp::PRODUCT:
      return "product";
    case ReduceOp::MIN:
      return "min";
    case ReduceOp::MAX:
      return "max";
    case ReduceOp::BAND:
      return "bitwise and";
    case ReduceOp::BOR:
      return "bitwise or";
    case ReduceOp::BXOR:
      return "bitwise xor";
    default:
      return "unknown";
  }
}

class ObservedBackend : public Backend {
 public:
  ObservedBackend(c10::intrusive_ptr<Backend> backend, std::shared_ptr<CallLog> calls,
                  std::unique_ptr<CallChecker> checker)
      : Backend(backend->getRank(), backend->getSize()),
        backend_(std::move(backend)),
        calls_(std::move(calls)),
        checker_(std::move(checker)) {}

  const std::string getBackendName() const override { return backend_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return backend_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { backend_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }
  void abort() override { backend_->abort(); }
  void shutdown() override { backend_->shutdown(); }
  ErrorType getError() override { return backend_->getError(); }
  bool supportsTensorAlloc(c10::DeviceIndex device) override {
    return backend_->supportsTensorAlloc(device);
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return backend_->allocateTensor(size, options);
  }

  WorkPointer broadcast(Tensors& tensors, const BroadcastOptions& options) override {
    return record(Call::rooted("broadcast", tensors, options.rootRank),
                  [&] { return backend_->broadcast(tensors, options); });
  }
  WorkPointer allreduce(Tensors& tensors, const AllreduceOptions& options) override {
    return record(Call::reducing("all_reduce", tensors, name_of(options.reduceOp)),
                  [&] { return backend_->allreduce(tensors, options); });
  }
  WorkPointer allreduce_sparse(Tensors& tensors, const AllreduceOptions& options) override {
    return record(Call::reducing("sparse all_reduce", {}, name_of(options.reduceOp)),
                  [&] { return backend_->allreduce_sparse(tensors, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const AllreduceCoalescedOptions& options) override {
    return record(Call::reducing("all_reduce", tensors, name_of(options.reduceOp)),
                  [&] { return backend_->allreduce_coalesced(tensors, options); });
  }
  WorkPointer reduce(Tensors& tensors, const ReduceOptions& options) override {
    return record(Call::rooted("reduce", tensors, options.rootRank),
                  [&] { return backend_->reduce(tensors, options); });
  }
  WorkPointer allgather(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return record(Call::of("all_gather", inputs),
                  [&] { return backend_->allgather(outputs, inputs, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const AllgatherOptions& options) override {
    return record(Call::of("all_gather", input),
                  [&] { return backend_->_allgather_base(output, input, options); });
  }
  WorkPointer allgather_coalesced(Lists& outputs, Tensors& inputs,
                                  const AllgatherOptions& options) override {
    return record(Call::of("all_gather", inputs),
                  [&] { return backend_->allgather_coalesced(outputs, inputs, options); });
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const AllgatherOptions& options) override {
    return record(Call::of("all_gather", inputs), [&] {
      return backend_->allgather_into_tensor_coalesced(outputs, inputs, options);
    });
  }
  WorkPointer gather(Lists& outputs, Tensors& inputs, const GatherOptions& options) override {
    return record(Call::rooted("gather", inputs, options.rootRank),
                  [&] { return backend_->gather(outputs, inputs, options); });
  }
  WorkPointer scatter(Tensors& outputs, Lists& inputs, const ScatterOptions& options) override {
    return record(Call::rooted("scatter", outputs, options.rootRank),
                  [&] { return backend_->scatter(outputs, inputs, options); });
  }
  WorkPointer reduce_scatter(Tensors& outputs, Lists& inputs,
                             const ReduceScatterOptions& options) override {
    return record(Call::reducing("reduce_scatter", outputs, name_of(options.reduceOp)),
                  [&] { return backend_->reduce_scatter(outputs, inputs, options); });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const ReduceScatterOptions& options) override {
    return record(Call::reducing("reduce_scatter", output, name_of(options.reduceOp)),
                  [&] { return backend_->_reduce_scatter_base(output, input, options); });
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ReduceScatterOptions& options) override {
    return record(Call::reducing("reduce_scatter", outputs, name_of(options.reduceOp)), [&] {
      return backend_->reduce_scatter_tensor_coalesced(outputs, inputs, options);
    });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                            const AllToAllOptions& options) override {
    return record(Call::of("all_to_all", {}), [&] {  // no tensors: their sizes may differ
      return backend_->alltoall_base(output, input, output_sizes, input_sizes, options);
    });
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override {
    return record(Call::of("all_to_all", {}),
                  [&] { return backend_->alltoall(outputs, inputs, options); });
  }
  WorkPointer barrier(const BarrierOptions& options) override {
    return record(Call::of("barrier", {}), [&] { return backend_->barrier(options); });
  }
  void monitoredBarrier(const BarrierOptions& options, bool wait_for_all) override {
    record(Call::of("barrier", {}), [&] {
      backend_->monitoredBarrier(options, wait_for_all);
      return WorkPointer();
    });
  }

  WorkPointer send(Tensors& tensors, int to, int tag) override {
    return backend_->send(tensors, to, tag);
  }
  WorkPointer recv(Tensors& tensors, int from, int tag) override {
    return backend_->recv(tensors, from, tag);
  }
  WorkPointer recvAnysource(Tensors& tensors, int tag) override {
    return backend_->recvAnysource(tensors, tag);
  }

 private:
  // Records a call, compares it if there is a checker, and runs it. The call is in progress
  // until its future completes, with a result or an error.
  template <class Run>
  WorkPointer record(const Call& call, const Run& run) {
    const std::int64_t number = calls_->begin(call);
    WorkPointer work;
    try {
      if (checker_) checker_->check(call);
      work = run();
    } catch (...) {
      calls_->end(number);
      throw;
    }
    if (!work) {
      calls_->end(number);
    } else {
      work->getFuture()->addCallback(
          [calls = calls_, number](c10::ivalue::Future&) { calls->end(number); },
          /*uses_future=*/false);
    }
    return work;
  }

  c10::intrusive_ptr<Backend> backend_;
  std::shared_ptr<CallLog> calls_;
  std::unique_ptr<CallChecker> checker_;
};

}  // namespace

c10::intrusive_ptr<Backend> make_observed_backend(c10::intrusive_ptr<Backend> backend,
                                                  std::shared_ptr<CallLog> calls,
                                                  std::unique_ptr<CallChecker> checker) {
  return c10::make_intrusive<ObservedBackend>(std::move(backend), std::move(calls),
                                              std::move(checker));
}

}  // namespace hasten
