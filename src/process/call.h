// File: process/call.h (internal)
// One collective as a rank calls it: what it is, and of which tensors. Made for each call, so it
// allocates nothing; its text is made when somebody asks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace hasten {

struct Call {
  static constexpr std::size_t kDimensions = 6;  // of the first tensor; the others are counted

  const char* operation = "";  // "all_reduce"; lives as long as the program
  std::int64_t tensors = 0;
  std::int64_t elements = 0;  // of all tensors
  at::ScalarType type = at::kFloat;
  std::array<std::int64_t, kDimensions> sizes{};
  std::int64_t dimensions = 0;
  std::int64_t root = -1;      // -1: none
  const char* reduction = "";  // "max"; empty: none, or the sum
  // What all ranks have to say alike for this call: a digest of every tensor's type and shape too.
  std::uint64_t fingerprint = 0;
  // What it is for, as CallScope says, and its number among such; -1: none.
  const char* purpose = nullptr;
  std::int64_t index = -1;

  static Call of(const char* operation, at::TensorList tensors);
  static Call rooted(const char* operation, at::TensorList tensors, std::int64_t root);
  static Call reducing(const char* operation, at::TensorList tensors, const char* reduction);

  // "all_reduce of 4 x 512 float", "all_reduce (max) of one long", "broadcast of 3 float, root 1".

  std::string text() const;
  // The same, " (bucket 3 of the gradients)" behind it.
  std::string text_with_purpose() const;

 private:
  std::string tensors_text() const;
};

// "37th".
std::string ordinal(std::int64_t number);

}  // namespace hasten
