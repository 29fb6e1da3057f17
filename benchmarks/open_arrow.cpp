// Measures on one thread how long it takes to open a folder of Arrow files, and how fast random
// rows of it are read. Prints one JSON line: milliseconds, CPU milliseconds, rows, and rows per
// second.
//
//   $ open_arrow FOLDER [READS]                 # by default 20000 random rows
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "cpu_seconds.h"
#include "hasten/data/arrow_dataset.h"

namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: open_arrow FOLDER [READS]\n"), 2;
  const std::int64_t reads = argc > 2 ? std::atol(argv[2]) : 20000;
  // Loads the module first, so that this is not part of the measured time.
  (void)hasten::load_arrow_dataset(argv[1], {.columns = {"label"}});
  const double cpu_start = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  const hasten::ArrowDataset rows = hasten::load_arrow_dataset(argv[1]);
  const double opened = seconds_since(start), opened_cpu = cpu_seconds() - cpu_start;
  std::uint64_t state = 1;
  std::int64_t tokens = 0;
  const auto read = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < reads; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto row =
        static_cast<std::int64_t>((state >> 16) % static_cast<std::uint64_t>(rows.size()));
    tokens += rows.get(row).at("input_ids").numel();
  }
  std::printf(
      "{\"open_ms\": %.2f, \"open_cpu_ms\": %.2f, \"rows\": %lld, \"tokens\": %lld, "
      "\"rows_per_s\": %.0f}\n",
      opened * 1e3, opened_cpu * 1e3, static_cast<long long>(rows.size()),
      static_cast<long long>(tokens), static_cast<double>(reads) / seconds_since(read));
  return 0;
}
