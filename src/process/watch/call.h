// File: process/watch/call.h (internal)
// Describes one call of a collective: its operation and tensors. A rank makes one for every call,
// so it allocates nothing; its text is only made on request.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace hasten {

struct Call {
  // At most this many sizes of the first tensor are kept. Other tensors are only counted.
  static constexpr std::size_t kDimensions = 6;

  const char* operation = "";  // such as "all_reduce"; a string of static lifetime
  std::int64_t tensors = 0;
  std::int64_t elements = 0;  // the sum over all tensors
  at::ScalarType type = at::kFloat;
  std::array<std::int64_t, kDimensions> sizes{};
  std::int64_t dimensions = 0;
  std::int64_t root = -1;      // -1 if the operation has none
  const char* reduction = "";  // such as "max"; empty for a sum or if there is no reduction
  // A digest of the operation, the type and shape of every tensor, the root and the reduction. It
  // must be the same on all ranks.
  std::uint64_t fingerprint = 0;
  // The purpose that the enclosing CallScope states, or null. A string of static lifetime.
  const char* purpose = nullptr;
  // The index that the enclosing CallScope states, or -1.
  std::int64_t index = -1;

  static Call of(const char* operation, at::TensorList tensors);
  static Call rooted(const char* operation, at::TensorList tensors, std::int64_t root);
  static Call reducing(const char* operation, at::TensorList tensors, const char* reduction);

  // Examples: "all_reduce of 4 x 512 float", "all_reduce (max) of one long", "broadcast of 3 float,
  // root 1".
  std::string text() const;
  // The same text followed by purpose and index, such as " (gradients, bucket 3)".
  std::string text_with_purpose() const;

 private:
  std::string tensors_text() const;
};

// Returns the English ordinal of a number, such as "37th".
std::string ordinal(std::int64_t number);

}  // namespace hasten
