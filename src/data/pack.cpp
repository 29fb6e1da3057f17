#include "hasten/data/detail/pack.h"

#include <ATen/ATen.h>

#include <cstring>

#include "formats/plain_tensor.h"
#include "hasten/base/error.h"

namespace hasten::detail {
namespace {

// Tensors begin at multiples of this many bytes, which suits every dtype and kernel.
constexpr std::int64_t kAlignment = 64;

std::int64_t rounded(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

void BatchWriter::tensor(const at::Tensor& tensor) {
  number(tensor.defined() ? static_cast<std::int64_t>(tensor.scalar_type()) : -1);
  if (!tensor.defined()) return;
  if (tensor.layout() != at::kStrided || tensor.is_quantized()) {
    throw UsageError("data.carry", {.what = "a batch that is sent to another process",
                                    .got = "a tensor that is sparse or quantized",
                                    .expected = "dense tensors",
                                    .hint = "set dispatch_batches = false"});
  }
  number(tensor.dim());
  for (const std::int64_t size : tensor.sizes()) number(size);
  tensors_.push_back(plain_tensor(tensor));
  number(at_);
  at_ += rounded(static_cast<std::int64_t>(tensors_.back().nbytes()));
}

at::Tensor BatchWriter::to_tensor() const {
  const auto head = static_cast<std::int64_t>(head_.size());
  const std::int64_t first = rounded(head + 8);
  at::Tensor all = at::empty({first + at_}, at::kByte);
  auto* to = all.data_ptr<std::uint8_t>();
  std::memcpy(to, &first, 8);
  std::memcpy(to + 8, head_.data(), head_.size());
  to += first;
  for (const at::Tensor& tensor : tensors_) {
    if (tensor.nbytes() > 0) std::memcpy(to, tensor.const_data_ptr(), tensor.nbytes());
    to += rounded(static_cast<std::int64_t>(tensor.nbytes()));
  }
  return all;
}

BatchReader::BatchReader(at::Tensor bytes) : bytes_(std::move(bytes)) { tensors_ = number(); }

std::int64_t BatchReader::number() {
  std::int64_t value = 0;
  this->bytes(&value, sizeof value);
  return value;
}

void BatchReader::bytes(void* data, std::size_t size) {
  TORCH_CHECK(at_ + size <= bytes_.nbytes(), "unpack: the bytes of the batch are incomplete");
  if (size > 0) std::memcpy(data, bytes_.const_data_ptr<std::uint8_t>() + at_, size);
  at_ += size;
}

at::Tensor BatchReader::tensor() {
  const std::int64_t type = number();
  if (type < 0) return {};
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(number()));
  std::int64_t count = 1;
  for (std::int64_t& size : sizes) count *= size = number();
  const std::int64_t begin = tensors_ + number();
  const auto scalar = static_cast<at::ScalarType>(type);
  const std::int64_t size = count * static_cast<std::int64_t>(at::elementSize(scalar));
  if (size == 0) return at::empty(sizes, scalar);
  return bytes_.narrow(0, begin, size).view(scalar).view(sizes);
}

}  // namespace hasten::detail
