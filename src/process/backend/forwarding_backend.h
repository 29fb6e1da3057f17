// File: process/backend/forwarding_backend.h (internal)
// Overrides the methods of c10d::Backend for a backend that wraps another one. Each method calls
// one of five functions of the derived class, which does its own work around `run`. So a wrapper
// implements five functions instead of twenty-five.
//
//   class Counted : public ForwardingBackend<Counted> {
//    public:
//     using ForwardingBackend::ForwardingBackend;
//     template <class Describe, class Tensors, class Run>
//     Work forward_in_place(const Describe&, Tensors& tensors, const Run& run) {
//       ++count_;
//       return run(tensors);
//     }
//     ...
//
// The derived class has the functions below. `describe()` returns the Call. `run` calls the wrapped
// backend with the tensors that it receives. `outputs` and `inputs` have any of c10d's types: a
// tensor, a vector of tensors, or a vector of such vectors. `tensors` is always a vector.
//   forward_in_place(describe, tensors, run)               the tensors are input and output
//   forward_out_of_place(describe, outputs, inputs, run)
//   forward_without_tensors(describe, run)
//   forward_send(tensors, run)                             a message to one rank
//   forward_receive(tensors, run)                          a message from one rank
//
// Methods that are not listed are not forwarded: like those of c10d::Backend, they throw or report
// that the backend lacks the feature. Thread rule: the same as for the wrapped backend.
#pragma once

#include <chrono>
#include <cstdint>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "process/watch/call_log.h"

namespace hasten {

// Returns the name of a reduction, which is empty for a sum with or without a factor.
const char* reduction_name(const c10d::ReduceOp& operation);

template <class Derived>
class ForwardingBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  explicit ForwardingBackend(c10::intrusive_ptr<c10d::Backend> backend)
      : Backend(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {}

  const std::string getBackendName() const override { return backend_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return backend_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { backend_->setSequenceNumberForGroup(); }
  std::uint64_t getSequenceNumberForGroup() override {
    return backend_->getSequenceNumberForGroup();
  }
  void abort() override { backend_->abort(); }
  void shutdown() override { backend_->shutdown(); }
  c10d::ErrorType getError() override { return backend_->getError(); }
  bool supportsTensorAlloc(c10::DeviceIndex device) override {
    return backend_->supportsTensorAlloc(device);
  }
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return backend_->allocateTensor(size, options);
  }

  Work broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return derived().forward_in_place(
        [&] { return Call::rooted("broadcast", tensors, options.rootRank); }, tensors,
        [&](Tensors& all) { return backend_->broadcast(all, options); });
  }
  Work allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return derived().forward_in_place(
        [&] { return Call::reducing("all_reduce", tensors, reduction_name(options.reduceOp)); },
        tensors, [&](Tensors& all) { return backend_->allreduce(all, options); });
  }
  Work allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return derived().forward_in_place(
        [&] { return Call::reducing("sparse all_reduce", {}, reduction_name(options.reduceOp)); },
        tensors, [&](Tensors& all) { return backend_->allreduce_sparse(all, options); });
  }
  Work allreduce_coalesced(Tensors& tensors,
                           const c10d::AllreduceCoalescedOptions& options) override {
    return derived().forward_in_place(
        [&] { return Call::reducing("all_reduce", tensors, reduction_name(options.reduceOp)); },
        tensors, [&](Tensors& all) { return backend_->allreduce_coalesced(all, options); });
  }
  Work reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return derived().forward_in_place(
        [&] { return Call::rooted("reduce", tensors, options.rootRank); }, tensors,
        [&](Tensors& all) { return backend_->reduce(all, options); });
  }

  Work allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::of("all_gather", inputs); }, outputs, inputs,
        [&](Lists& out, Tensors& in) { return backend_->allgather(out, in, options); });
  }
  Work _allgather_base(at::Tensor& output, at::Tensor& input,
                       const c10d::AllgatherOptions& options) override {
    return derived().forward_out_of_place([&] { return Call::of("all_gather", input); }, output,
                                          input,
                                          [&](at::Tensor& out, at::Tensor& in) {
                                            return backend_->_allgather_base(out, in, options);
                                          });
  }
  Work allgather_coalesced(Lists& outputs, Tensors& inputs,
                           const c10d::AllgatherOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::of("all_gather", inputs); }, outputs, inputs,
        [&](Lists& out, Tensors& in) { return backend_->allgather_coalesced(out, in, options); });
  }
  Work allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::of("all_gather", inputs); }, outputs, inputs,
        [&](Tensors& out, Tensors& in) {
          return backend_->allgather_into_tensor_coalesced(out, in, options);
        });
  }
  Work gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::rooted("gather", inputs, options.rootRank); }, outputs, inputs,
        [&](Lists& out, Tensors& in) { return backend_->gather(out, in, options); });
  }
  Work scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::rooted("scatter", outputs, options.rootRank); }, outputs, inputs,
        [&](Tensors& out, Lists& in) { return backend_->scatter(out, in, options); });
  }
  Work reduce_scatter(Tensors& outputs, Lists& inputs,
                      const c10d::ReduceScatterOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::reducing("reduce_scatter", outputs, reduction_name(options.reduceOp)); },
        outputs, inputs,
        [&](Tensors& out, Lists& in) { return backend_->reduce_scatter(out, in, options); });
  }
  Work _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                            const c10d::ReduceScatterOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::reducing("reduce_scatter", output, reduction_name(options.reduceOp)); },
        output, input,
        [&](at::Tensor& out, at::Tensor& in) {
          return backend_->_reduce_scatter_base(out, in, options);
        });
  }
  Work reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                       const c10d::ReduceScatterOptions& options) override {
    return derived().forward_out_of_place(
        [&] { return Call::reducing("reduce_scatter", outputs, reduction_name(options.reduceOp)); },
        outputs, inputs,
        [&](Tensors& out, Tensors& in) {
          return backend_->reduce_scatter_tensor_coalesced(out, in, options);
        });
  }
  // The description contains no tensors, because their sizes may differ between ranks.
  Work alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                     std::vector<std::int64_t>& input_sizes,
                     const c10d::AllToAllOptions& options) override {
    return derived().forward_out_of_place([] { return Call::of("all_to_all", {}); }, output, input,
                                          [&](at::Tensor& out, at::Tensor& in) {
                                            return backend_->alltoall_base(out, in, output_sizes,
                                                                           input_sizes, options);
                                          });
  }
  Work alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    return derived().forward_out_of_place(
        [] { return Call::of("all_to_all", {}); }, outputs, inputs,
        [&](Tensors& out, Tensors& in) { return backend_->alltoall(out, in, options); });
  }

  Work barrier(const c10d::BarrierOptions& options) override {
    return derived().forward_without_tensors([] { return Call::of("barrier", {}); },
                                             [&] { return backend_->barrier(options); });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override {
    derived().forward_without_tensors([] { return Call::of("barrier", {}); },
                                      [&] {
                                        backend_->monitoredBarrier(options, wait_for_all);
                                        return Work();
                                      });
  }

  Work send(Tensors& tensors, int to, int tag) override {
    return derived().forward_send(tensors,
                                  [&](Tensors& all) { return backend_->send(all, to, tag); });
  }
  Work recv(Tensors& tensors, int from, int tag) override {
    return derived().forward_receive(tensors,
                                     [&](Tensors& all) { return backend_->recv(all, from, tag); });
  }
  Work recvAnysource(Tensors& tensors, int tag) override {
    return derived().forward_receive(
        tensors, [&](Tensors& all) { return backend_->recvAnysource(all, tag); });
  }

 private:
  Derived& derived() { return static_cast<Derived&>(*this); }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace hasten
