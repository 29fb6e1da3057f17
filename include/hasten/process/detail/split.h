// File: hasten/process/detail/split.h
// This process's part of a list, a tensor or a map of lists, for work that a program divides
// itself. Corresponds to Accelerate's split_between_processes.
//
//   for (const std::string& text : split_between_processes(texts, accelerator.process()))
//     std::puts(text.c_str());
//
// Parts are contiguous and in rank order. If the length is not divisible, the first parts have one
// more entry. With apply_padding the other parts repeat their last entry (an empty part repeats the
// last entry of the list), so that results can be gathered. A single process gets everything.
// Throws UsageError "process.split" for a map of lists of unequal length. Thread rule: pure
// functions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "hasten/base/detail/export.h"
#include "hasten/process/group.h"

namespace hasten {

namespace detail {
// The indices of the entries of this process's part.
HASTEN_API std::vector<std::int64_t> part_indices(std::int64_t length, const ProcessState& process,
                                                  bool apply_padding);
[[noreturn]] HASTEN_API void throw_uneven_lists();
}  // namespace detail

template <class T>
std::vector<T> split_between_processes(const std::vector<T>& inputs, const ProcessState& process,
                                       bool apply_padding = false) {
  std::vector<T> part;
  for (const std::int64_t at :
       detail::part_indices(static_cast<std::int64_t>(inputs.size()), process, apply_padding))
    part.push_back(inputs[static_cast<std::size_t>(at)]);
  return part;
}

// Divides along the first dimension.
HASTEN_API at::Tensor split_between_processes(const at::Tensor& inputs, const ProcessState& process,
                                              bool apply_padding = false);

// Divides each list, or tensor, of the map. All must have the same length.
template <class List>
std::map<std::string, List> split_between_processes(const std::map<std::string, List>& inputs,
                                                    const ProcessState& process,
                                                    bool apply_padding = false) {
  const auto length = [](const List& list) {
    if constexpr (requires { list.dim(); }) {
      return list.size(0);
    } else {
      return static_cast<std::int64_t>(list.size());
    }
  };
  std::map<std::string, List> parts;
  for (const auto& [name, list] : inputs) {
    if (length(list) != length(inputs.begin()->second)) detail::throw_uneven_lists();
    parts.emplace(name, split_between_processes(list, process, apply_padding));
  }
  return parts;
}

}  // namespace hasten
