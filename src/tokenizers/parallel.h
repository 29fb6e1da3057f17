// File: tokenizers/parallel.h
// Encodes the rows of a batch on several threads.
//
//   parallel_for(texts.size(), 4, [&](std::size_t from, std::size_t to) { ... });
//
// If the system lacks threads, the calling thread does the work of those that cannot be started.
// Thread rule: blocks until all threads have ended. Throws what `work` throws, and UsageError
// "tokenizers.bad-threads".
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "base/start_thread.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::tokenizers {

// Calls work(from, to) for parts of [0, count), each on its own thread, and rethrows the exception
// of the first part that throws.
template <class Work>
void parallel_for(std::size_t count, int threads, Work work) {
  if (threads < 1)
    throw UsageError(
        "tokenizers.bad-threads",
        {.what = "the number of threads", .got = str(threads), .expected = "at least 1"});
  const std::size_t parts = std::min(count, static_cast<std::size_t>(threads));
  if (parts <= 1) return work(std::size_t{0}, count);
  std::vector<std::exception_ptr> errors(parts);
  {
    std::vector<std::jthread> workers;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto run_part = [&, part] {
        try {
          work(count * part / parts, count * (part + 1) / parts);
        } catch (...) {
          errors[part] = std::current_exception();
        }
      };
      std::jthread worker = start_thread<std::jthread>(run_part);
      if (worker.joinable()) {
        workers.push_back(std::move(worker));
      } else {
        run_part();
      }
    }
  }
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace hasten::tokenizers
