#include "ops/adapted_weight.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/permute.h>
#include <ATen/ops/t.h>
#include <ATen/ops/transpose.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>

#include <utility>

namespace hasten::ops {
namespace {

class AdaptedWeight : public c10::TensorImpl {
 public:
  AdaptedWeight(const c10::TensorImpl& weight, WeightLayout layout,
                std::shared_ptr<WeightAdapter> adapter)
      : TensorImpl(c10::Storage(weight.storage()), weight.key_set().add(kAdapterKey),
                   weight.dtype()),
        layout_(layout),
        adapter_(std::move(adapter)) {
    set_sizes_and_strides(weight.sizes(), weight.strides(), weight.storage_offset());
  }

  // set_data() calls this.
  void shallow_copy_from(const c10::intrusive_ptr<TensorImpl>& other) override {
    TensorImpl::shallow_copy_from(other);
    key_set_ = key_set_.add(kAdapterKey);
  }

  WeightLayout layout() const { return layout_; }
  const std::shared_ptr<WeightAdapter>& adapter() const { return adapter_; }

 private:
  WeightLayout layout_;
  std::shared_ptr<WeightAdapter> adapter_;
};

const AdaptedWeight* adapted(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.key_set().has(kAdapterKey)) return nullptr;
  return dynamic_cast<const AdaptedWeight*>(tensor.unsafeGetTensorImpl());
}

// Calls the adapter if the weight has one and is in this form.
at::Tensor applied(const at::Tensor& x, const at::Tensor& weight, WeightLayout layout,
                   const at::Tensor& y) {
  const AdaptedWeight* const found = adapted(weight);
  return found && found->layout() == layout ? found->adapter()->apply(x, y) : y;
}

at::Tensor adapted_linear(const at::Tensor& x, const at::Tensor& weight,
                          const std::optional<at::Tensor>& bias) {
  const NoAdaptersGuard weights_alone;
  return applied(x, weight, WeightLayout::out_in, at::linear(x, weight, bias));
}

at::Tensor adapted_matmul(const at::Tensor& x, const at::Tensor& weight) {
  const NoAdaptersGuard weights_alone;
  return applied(x, weight, WeightLayout::in_out, at::matmul(x, weight));
}

at::Tensor adapted_mm(const at::Tensor& x, const at::Tensor& weight) {
  const NoAdaptersGuard weights_alone;
  return applied(x, weight, WeightLayout::in_out, at::mm(x, weight));
}

at::Tensor adapted_addmm(const at::Tensor& bias, const at::Tensor& x, const at::Tensor& weight,
                         const at::Scalar& beta, const at::Scalar& alpha) {
  const NoAdaptersGuard weights_alone;
  const at::Tensor y = at::addmm(bias, x, weight, beta, alpha);
  return alpha.equal(1) ? applied(x, weight, WeightLayout::in_out, y) : y;
}

// Returns the transposed weight with the adapter of the weight.
at::Tensor keep_adapter(const at::Tensor& weight, const at::Tensor& transposed) {
  const AdaptedWeight* const found = adapted(weight);
  if (found == nullptr || weight.dim() != 2) return transposed;
  const bool is_out_in = found->layout() == WeightLayout::out_in;
  return with_adapter(transposed, is_out_in ? WeightLayout::in_out : WeightLayout::out_in,
                      found->adapter());
}

at::Tensor adapted_t(const at::Tensor& weight) {
  const NoAdaptersGuard weights_alone;
  return keep_adapter(weight, at::t(weight));
}

at::Tensor adapted_transpose(const at::Tensor& weight, std::int64_t first, std::int64_t second) {
  const NoAdaptersGuard weights_alone;
  const at::Tensor transposed = at::transpose(weight, first, second);
  return first == second ? transposed : keep_adapter(weight, transposed);
}

at::Tensor adapted_permute(const at::Tensor& weight, at::IntArrayRef dimensions) {
  const NoAdaptersGuard weights_alone;
  const at::Tensor permuted = at::permute(weight, dimensions);
  const bool swaps = dimensions.size() == 2 && (dimensions[0] == 1 || dimensions[0] == -1);
  return swaps ? keep_adapter(weight, permuted) : permuted;
}

// LibTorch calls these functions for weights with an adapter. They are registered when the first
// such weight is made, and never removed, because weights may still be in use while the process
// exits.
void register_adapted_operators() {
  // The pointers are kept in memory, so that LeakSanitizer finds them.
  [[gnu::used]] static const torch::Library* const others = [] {
    auto* const made =
        new torch::Library(torch::Library::IMPL, "_", kAdapterKey, __FILE__, __LINE__);
    made->fallback(torch::CppFunction::makeFallthrough());
    return made;
  }();
  [[gnu::used]] static const torch::Library* const adapted_operators = [] {
    auto* const made =
        new torch::Library(torch::Library::IMPL, "aten", kAdapterKey, __FILE__, __LINE__);
    made->impl("linear", adapted_linear);
    made->impl("matmul", adapted_matmul);
    made->impl("mm", adapted_mm);
    made->impl("addmm", adapted_addmm);
    made->impl("t", adapted_t);
    made->impl("transpose.int", adapted_transpose);
    made->impl("permute", adapted_permute);
    return made;
  }();
}

}  // namespace

at::Tensor with_adapter(const at::Tensor& weight, WeightLayout layout,
                        std::shared_ptr<WeightAdapter> adapter) {
  register_adapted_operators();
  return at::Tensor(c10::make_intrusive<AdaptedWeight>(*weight.unsafeGetTensorImpl(), layout,
                                                       std::move(adapter)));
}

at::Tensor without_adapter(const at::Tensor& weight) {
  const c10::TensorImpl& from = *weight.unsafeGetTensorImpl();
  auto plain = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(from.storage()), from.key_set().remove(kAdapterKey), from.dtype());
  plain->set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
  return at::Tensor(std::move(plain));
}

std::shared_ptr<WeightAdapter> adapter_of(const at::Tensor& weight) {
  const AdaptedWeight* const found = adapted(weight);
  return found ? found->adapter() : nullptr;
}

std::shared_ptr<WeightAdapter> adapter_of(const at::Tensor& weight, WeightLayout layout) {
  const AdaptedWeight* const found = adapted(weight);
  return found && found->layout() == layout ? found->adapter() : nullptr;
}

bool calls_adapter(const at::Tensor& weight) {
  return adapted(weight) != nullptr && !c10::impl::tls_is_dispatch_key_excluded(kAdapterKey);
}

NoAdaptersGuard::NoAdaptersGuard() : guard_(kAdapterKey) {}

}  // namespace hasten::ops
