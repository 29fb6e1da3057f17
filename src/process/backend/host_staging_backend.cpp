#include "process/backend/backend_wrappers.h"

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "process/backend/forwarding_backend.h"

namespace hasten {
namespace {

using Tensors = std::vector<at::Tensor>;
using Lists = std::vector<Tensors>;

at::Tensor on_host(const at::Tensor& tensor) { return tensor.detach().cpu().contiguous(); }
Tensors on_host(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(on_host(tensor));
  return copies;
}
Lists on_host(const Lists& lists) {
  Lists copies;
  for (const Tensors& tensors : lists) copies.push_back(on_host(tensors));
  return copies;
}

// Returns an uninitialized tensor on the host. An output does not have to be copied there first.
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

void copy_back(const at::Tensor& from, const at::Tensor& to) {
  const at::Tensor target = to.detach();
  target.copy_(from);
}
void copy_back(const Tensors& from, const Tensors& to) {
  for (std::size_t i = 0; i < to.size(); ++i) copy_back(from[i], to[i]);
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
Tensors all_of(const at::Tensor& tensor) { return {tensor}; }

// Returns work that is complete already.
c10::intrusive_ptr<c10d::Work> completed_work(const Tensors& outputs) {
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  future->markCompleted(c10::IValue(outputs));
  return c10d::Work::create_from_future(future);
}

class HostStagingBackend : public ForwardingBackend<HostStagingBackend> {
 public:
  using ForwardingBackend::ForwardingBackend;

  // The wrapped backend allocates in the host's memory.
  bool supportsTensorAlloc(c10::DeviceIndex /*device*/) override { return false; }

  template <class Describe, class Run>
  Work forward_in_place(const Describe& /*describe*/, Tensors& tensors, const Run& run) {
    Tensors host = on_host(tensors);
    run(host)->wait();
    copy_back(host, tensors);
    return completed_work(tensors);
  }
  template <class Describe, class Outputs, class Inputs, class Run>
  Work forward_out_of_place(const Describe& /*describe*/, Outputs& outputs, Inputs& inputs,
                            const Run& run) {
    Inputs in = on_host(inputs);
    Outputs out = empty_on_host(outputs);
    run(out, in)->wait();
    copy_back(out, outputs);
    return completed_work(all_of(outputs));
  }
  template <class Describe, class Run>
  Work forward_without_tensors(const Describe& /*describe*/, const Run& run) {
    return run();
  }
  template <class Run>
  Work forward_send(Tensors& tensors, const Run& run) {
    Tensors host = on_host(tensors);
    run(host)->wait();
    return completed_work({});
  }
  template <class Run>
  Work forward_receive(Tensors& tensors, const Run& run) {
    Tensors host = empty_on_host(tensors);
    run(host)->wait();
    copy_back(host, tensors);
    return completed_work(tensors);
  }
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_host_staging_backend(
    c10::intrusive_ptr<c10d::Backend> backend) {
  return c10::make_intrusive<HostStagingBackend>(std::move(backend));
}

}  // namespace hasten
