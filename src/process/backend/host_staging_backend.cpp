#include "process/backend/host_staging_backend.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

namespace hasten {
namespace {

using namespace c10d;

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;
using WorkPointer = c10::intrusive_ptr<Work>;

Tensors on_host(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().contiguous());
  return copies;
}
Lists on_host(const Lists& lists) {
  Lists copies;
  for (const Tensors& tensors : lists) copies.push_back(on_host(tensors));
  return copies;
}

// Returns an uninitialized tensor on the host: an output need not be copied there first.
at::Tensor empty_on_host(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kCPU));
}
Tensors empty_on_host(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(empty_on_host(tensor));
  return copies;
}
Lists empty_on_host(const Lists& lists) {
  Lists copies;
  for (const Tensors& tensors : lists) copies.push_back(empty_on_host(tensors));
  return copies;
}

void copy_back(const Tensors& from, const Tensors& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    const at::Tensor target = to[i].detach();
    target.copy_(from[i]);
  }
}
void copy_back(const Lists& from, const Lists& to) {
  for (std::size_t i = 0; i < to.size(); ++i) copy_back(from[i], to[i]);
}

Tensors all_of(const Lists& lists) {
  Tensors all;
  for (const Tensors& tensors : lists) all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}
Tensors all_of(const Tensors& tensors) { return tensors; }

// Returns work that is complete already.
WorkPointer completed_work(const Tensors& outputs) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(outputs));
  return Work::create_from_future(future);
}

class HostStagingBackend : public Backend {
 public:
  explicit HostStagingBackend(c10::intrusive_ptr<Backend> backend)
      : Backend(backend->getRank(), backend->getSize()), backend_(std::move(backend)) {}

  const std::string getBackendName() const override { return backend_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return backend_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }

  WorkPointer broadcast(Tensors& tensors, const BroadcastOptions& options) override {
    return run_in_place(tensors, [&](Tensors& host) { return backend_->broadcast(host, options); });
  }
  WorkPointer allreduce(Tensors& tensors, const AllreduceOptions& options) override {
    return run_in_place(tensors, [&](Tensors& host) { return backend_->allreduce(host, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const AllreduceCoalescedOptions& options) override {
    return run_in_place(
        tensors, [&](Tensors& host) { return backend_->allreduce_coalesced(host, options); });
  }
  WorkPointer reduce(Tensors& tensors, const ReduceOptions& options) override {
    return run_in_place(tensors, [&](Tensors& host) { return backend_->reduce(host, options); });
  }
  WorkPointer allgather(Lists& outputs, Tensors& inputs, const AllgatherOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Lists& out, Tensors& in) {
      return backend_->allgather(out, in, options);
    });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const AllgatherOptions& options) override {
    return run_with_copies(Tensors{output}, Tensors{input}, [&](Tensors& out, Tensors& in) {
      return backend_->_allgather_base(out[0], in[0], options);
    });
  }
  WorkPointer allgather_coalesced(Lists& outputs, Tensors& inputs,
                                  const AllgatherOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Lists& out, Tensors& in) {
      return backend_->allgather_coalesced(out, in, options);
    });
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const AllgatherOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Tensors& out, Tensors& in) {
      return backend_->allgather_into_tensor_coalesced(out, in, options);
    });
  }
  WorkPointer gather(Lists& outputs, Tensors& inputs, const GatherOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Lists& out, Tensors& in) {
      return backend_->gather(out, in, options);
    });
  }
  WorkPointer scatter(Tensors& outputs, Lists& inputs, const ScatterOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Tensors& out, Lists& in) {
      return backend_->scatter(out, in, options);
    });
  }
  WorkPointer reduce_scatter(Tensors& outputs, Lists& inputs,
                             const ReduceScatterOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Tensors& out, Lists& in) {
      return backend_->reduce_scatter(out, in, options);
    });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const ReduceScatterOptions& options) override {
    return run_with_copies(Tensors{output}, Tensors{input}, [&](Tensors& out, Tensors& in) {
      return backend_->_reduce_scatter_base(out[0], in[0], options);
    });
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const ReduceScatterOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Tensors& out, Tensors& in) {
      return backend_->reduce_scatter_tensor_coalesced(out, in, options);
    });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                            const AllToAllOptions& options) override {
    return run_with_copies(Tensors{output}, Tensors{input}, [&](Tensors& out, Tensors& in) {
      return backend_->alltoall_base(out[0], in[0], output_sizes, input_sizes, options);
    });
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override {
    return run_with_copies(outputs, inputs, [&](Tensors& out, Tensors& in) {
      return backend_->alltoall(out, in, options);
    });
  }
  WorkPointer barrier(const BarrierOptions& options) override { return backend_->barrier(options); }

  WorkPointer send(Tensors& tensors, int to, int tag) override {
    Tensors host = on_host(tensors);
    backend_->send(host, to, tag)->wait();
    return completed_work({});
  }
  WorkPointer recv(Tensors& tensors, int from, int tag) override {
    Tensors host = empty_on_host(tensors);
    backend_->recv(host, from, tag)->wait();
    copy_back(host, tensors);
    return completed_work(tensors);
  }

 private:
  template <class Run>
  static WorkPointer run_in_place(const Tensors& tensors, const Run& run) {
    Tensors host = on_host(tensors);
    run(host)->wait();
    copy_back(host, tensors);
    return completed_work(tensors);
  }

  template <class Outputs, class Inputs, class Run>
  static WorkPointer run_with_copies(const Outputs& outputs, const Inputs& inputs, const Run& run) {
    Inputs in = on_host(inputs);
    Outputs out = empty_on_host(outputs);
    run(out, in)->wait();
    copy_back(out, outputs);
    return completed_work(all_of(outputs));
  }

  c10::intrusive_ptr<Backend> backend_;
};

}  // namespace

c10::intrusive_ptr<Backend> make_host_staging_backend(c10::intrusive_ptr<Backend> backend) {
  return c10::make_intrusive<HostStagingBackend>(std::move(backend));
}

}  // namespace hasten
