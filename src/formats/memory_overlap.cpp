#include "formats/memory_overlap.h"

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "device/device.h"
#include "formats/safetensors_header.h"
#include "hasten/base/error.h"
#include "hasten/formats/safetensors.h"

namespace hasten {
namespace {

using safetensors::quoted;

// The start of a tensor's memory. On a device without addresses, the storage and the offset
// replace the address.
struct Begin {
  const void* memory;  // The storage, or null if `at` is an address.
  const char* at;
};

Begin begin_of(const at::Tensor& tensor) {
  if (device_of(tensor.device()).traits().has_addresses)
    return {nullptr, static_cast<const char*>(tensor.const_data_ptr())};
  const auto offset = static_cast<std::uintptr_t>(tensor.storage_offset()) * tensor.element_size();
  return {tensor.storage().unsafeGetStorageImpl(), reinterpret_cast<const char*>(offset)};
}

// The memory that a tensor covers.
struct Extent {
  int device_type, device_index;
  const void* memory;
  const char* begin;
  const char* end;
  const std::string* name;
  bool contiguous;
};

Extent extent_of(const std::string& name, const at::Tensor& tensor) {
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto [memory, begin] = begin_of(tensor);
  const char* end = begin + (last + 1) * static_cast<std::int64_t>(tensor.element_size());
  return {static_cast<int>(tensor.device().type()),
          tensor.device().index(),
          memory,
          begin,
          end,
          &name,
          tensor.is_contiguous()};
}

}  // namespace

// Overlapping extents count as shared memory, unless two views interleave, such as columns of one
// matrix. Interleaved views begin at different addresses and are both non-contiguous.
void detail::check_no_shared_memory(const TensorDict& tensors, const std::string& file) {
  std::vector<Extent> extents;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0 && tensor.has_storage()) extents.push_back(extent_of(name, tensor));
  }
  std::stable_sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.device_type, a.device_index, a.memory, a.begin) <
           std::tie(b.device_type, b.device_index, b.memory, b.begin);
  });
  const Extent* widest = nullptr;  // The previous extent with the largest end.
  for (const Extent& extent : extents) {
    const bool same_memory = widest != nullptr && widest->device_type == extent.device_type &&
                             widest->device_index == extent.device_index &&
                             widest->memory == extent.memory;
    if (same_memory && extent.begin < widest->end &&
        (extent.contiguous || widest->contiguous || extent.begin == widest->begin)) {
      throw UsageError("safetensors.shared",
                       {.what = file + ": tensors " + quoted(*widest->name) + " and " +
                                quoted(*extent.name) + " share memory",
                        .hint = "drop_shared() removes the second name of tied weights; clone() "
                                "gives each its own memory"});
    }
    if (!same_memory || extent.end > widest->end) widest = &extent;
  }
}

std::map<std::string, std::string> drop_shared(TensorDict& tensors) {
  using Key = std::tuple<const void*, const void*, int, int, at::ScalarType,
                         std::vector<std::int64_t>, std::vector<std::int64_t>>;
  std::map<Key, std::string> first;
  std::map<std::string, std::string> dropped;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.defined() || tensor.is_meta() || !tensor.has_storage() || tensor.numel() == 0) {
      continue;
    }
    const auto [memory, begin] = begin_of(tensor);
    Key key(memory, begin, static_cast<int>(tensor.device().type()), tensor.device().index(),
            tensor.scalar_type(), tensor.sizes().vec(), tensor.strides().vec());
    const auto [kept, is_new] = first.emplace(std::move(key), name);
    if (!is_new) dropped.emplace(name, kept->second);
  }
  for (const auto& [name, kept] : dropped) tensors.erase(name);
  return dropped;
}

}  // namespace hasten
