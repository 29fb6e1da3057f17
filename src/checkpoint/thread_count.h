// File: checkpoint/thread_count.h (internal)
// The number of threads of an operation, which the JSON files of checkpoints record: LibTorch
// divides sums among its threads, so their last bits depend on this number.
//
//   add_thread_count(json);
//   const std::string change = change_of_threads(thread_count_of(json), at::get_num_threads());
//
// Thread rule: the thread that trains, because the number may differ on another one.
#pragma once

#include <ATen/Parallel.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_number.h"
#include "hasten/base/text.h"

namespace hasten {

// Sets the key `threads` of the object to the current number.
inline void add_thread_count(nlohmann::json& json) { json["threads"] = at::get_num_threads(); }

// Returns the saved number, or 0 for a checkpoint of an earlier version, which has none. Throws
// JsonError.
inline std::int64_t thread_count_of(const nlohmann::json& json) {
  return whole_number_at(json, "threads", 0);
}

// Returns a sentence if both numbers are known and differ, or an empty text.
inline std::string change_of_threads(std::int64_t before, std::int64_t now) {
  if (before == 0 || before == now) return "";
  return str("the number of threads of an operation is ", now, " and was ", before,
             " when the checkpoint was made: results may differ in their last bits from those of "
             "an uninterrupted run");
}

}  // namespace hasten
