// File: ops/adapted_weight.h (internal)
// A weight that changes each product of an input and the weight: y = x W^T becomes adapter.apply(x,
// y).
//
//   linear->weight = with_adapter(linear->weight, WeightLayout::out_in, adapter);  // a LinearImpl
//   linear->forward(x);                                                            // calls the adapter
//
// LibTorch's modules have no virtual forward(), so the tensor has the adapter. It is a TensorImpl
// of its own class with the dispatch key DeferredInit. For this key, hasten registers kernels of
// the products (linear, matmul, mm, addmm) and of the transpositions, which keep the adapter; all
// other operators pass the key by. Therefore the adapter takes part on every thread and whoever
// calls the operator: torch::nn::Linear, ops::linear, or the interpreter of exported programs. The
// tensor knows whether its rows are outputs or inputs, so the backward pass, which multiplies by
// the other form, uses the weight alone. The key is above those of autocast: the weight is
// recognized before it is cast. LibTorch has no kernels for the key, which was meant for
// torchdistx, a library that is no longer developed.
//
// The adapter stays with the tensor in set_data(), and so in Module::to(). Other tensors that are
// made from the weight (by detach(), clone(), a slice) have no adapter.
//
// Thread rule: that of tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>

namespace hasten::ops {

class WeightAdapter {
 public:
  virtual ~WeightAdapter() = default;
  // Returns the result of the layer. x [..., in]; y [..., out] is the product without the adapter,
  // with the layer's bias. Autocast and autograd are as at the call of the operator.
  virtual at::Tensor apply(const at::Tensor& x, const at::Tensor& y) const = 0;
};

// The form of a weight: [out, in], as torch.nn.Linear has it, or [in, out].
enum class WeightLayout { out_in, in_out };

// Returns a tensor on the memory of `weight` that does not require a gradient. The weight must be a
// dense tensor with two dimensions.
at::Tensor with_adapter(const at::Tensor& weight, WeightLayout layout,
                        std::shared_ptr<WeightAdapter> adapter);

// Returns a plain tensor on the same memory.
at::Tensor without_adapter(const at::Tensor& weight);

// Returns null if the tensor has none.
std::shared_ptr<WeightAdapter> adapter_of(const at::Tensor& weight);
// Returns the adapter of a layer whose forward pass multiplies by a weight of this layout, or null.
std::shared_ptr<WeightAdapter> adapter_of(const at::Tensor& weight, WeightLayout layout);

// The key for which the products have kernels that call adapters.
inline constexpr c10::DispatchKey kAdapterKey = c10::DispatchKey::DeferredInit;
// True if such a kernel would call the tensor's adapter now: it then calls its operator once more,
// for the weight alone, and operators of the adapter.
bool calls_adapter(const at::Tensor& weight);

// While it exists, this thread computes with the weights alone.
class NoAdaptersGuard {
 public:
  NoAdaptersGuard();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

}  // namespace hasten::ops
