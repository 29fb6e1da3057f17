#include "prepare/byte_tensor.h"

#include <torch/torch.h>

#include "device/device.h"

namespace hasten {

// These are the types of Gloo, which has the fewest.
bool is_sendable(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kBool:
      return true;
    default:
      return false;
  }
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  at::Tensor whole = tensor.resolve_conj().resolve_neg().contiguous();
  if (!device_of(whole.device()).traits().has_addresses) whole = whole.cpu();
  // A contiguous tensor with one element may have any stride, which a view of bytes would refuse.
  return whole.as_strided({whole.numel()}, {1}).view(at::kByte);
}

at::Tensor tensor_of_bytes(const at::Tensor& bytes, const at::Tensor& like) {
  return bytes.view(like.scalar_type()).view(like.sizes());
}

}  // namespace hasten
