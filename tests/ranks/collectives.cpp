// A rank that joins the others and checks every collective against values that each rank can
// compute itself, with any launcher. Prints one line, and exits with 1 if a number is wrong.
//
//   collectives [REPETITIONS]
//
// COLLECTIVES_BY_MESSAGES=1 disables shared memory.
#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/process/group.h"

namespace {

using namespace hasten;

int failures = 0;

void check(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("wrong: %s\n", what);
}

// The values of a rank.
at::Tensor rank_values(std::int64_t rank, at::ScalarType type) {
  return (at::arange(12).view({3, 4}) + 100 * rank).to(type);
}

void check_types(const Group& group) {
  const std::int64_t size = group.size(), rank = group.rank();
  for (const auto type : {at::kFloat, at::kDouble, at::kLong, at::kInt, at::kByte, at::kHalf,
                          at::kBFloat16, at::kBool}) {
    std::vector<at::Tensor> parts;
    for (std::int64_t each = 0; each < size; ++each) parts.push_back(rank_values(each, type));
    check(at::equal(group.gather(rank_values(rank, type)), at::cat(parts)), "gather");
    check(at::equal(group.gather(rank_values(rank, type).t()),
                    at::cat(parts).view({size, 3, 4}).transpose(1, 2).reshape({size * 4, 3})),
          "gather of a transposed tensor");
    for (std::int64_t from = 0; from < size; ++from)
      check(at::equal(group.broadcast(rank_values(rank, type), from), rank_values(from, type)),
            "broadcast");
  }
}

void check_reductions(const Group& group) {
  const std::int64_t size = group.size(), rank = group.rank();
  const at::Tensor own = rank_values(rank, at::kDouble), before = own.clone();
  at::Tensor sum = at::zeros_like(own);
  for (std::int64_t each = 0; each < size; ++each) sum += rank_values(each, at::kDouble);
  check(at::equal(group.reduce(own), sum), "sum");
  check(at::allclose(group.reduce(own, Reduction::mean), sum / size), "mean");
  check(at::equal(group.reduce(own, Reduction::max), rank_values(size - 1, at::kDouble)), "max");
  check(at::equal(group.reduce(own, Reduction::none), own), "none");
  check(at::allclose(group.reduce(own, Reduction::sum, 0.5), sum * 0.5), "scaled sum");
  check(at::equal(own, before), "the input is unchanged");
  check(group.gather(at::scalar_tensor(rank)).numel() == size, "gather of a scalar");
}

void check_padding(const Group& group) {
  const std::int64_t size = group.size(), rank = group.rank();
  const at::Tensor own = at::full({rank + 1, 2}, rank);
  const at::Tensor padded = group.pad_across_processes(own, 0, -1);
  check(at::equal(group.pad_across_processes(own, -own.dim(), -1), padded),
        "a dimension from the end");
  check(padded.size(0) == size, "padded to the longest");
  check(at::equal(padded.narrow(0, 0, rank + 1), own), "padded at the end");
  check(rank == size - 1 || padded[size - 1][0].item<std::int64_t>() == -1, "padding");
  check(at::equal(group.pad_across_processes(own, 0, -1, true).narrow(0, size - rank - 1, rank + 1),
                  own),
        "padded at the beginning");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto began = std::chrono::steady_clock::now();
    const Worker worker = this_worker();
    const ProcessState process = ProcessState::of(worker, /*cpu=*/true);
    const bool by_messages = std::getenv("COLLECTIVES_BY_MESSAGES") != nullptr;
    const Group group = Group::form(worker, {.shared_memory = !by_messages});
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    check(group.rank() == process.process_index && group.size() == process.num_processes,
          "rank and size");
    const int repetitions = argc > 1 ? std::atoi(argv[1]) : 1;
    for (int i = 0; i < repetitions; ++i) {
      check_types(group);
      check_reductions(group);
      check_padding(group);
      group.barrier();
    }
    if (std::getenv("COLLECTIVES_TIME") != nullptr) std::printf("met in %.3f s\n", seconds);
    std::printf("rank %ld of %ld, local %ld, attempt %ld, by %s: %s\n",
                static_cast<long>(worker.rank), static_cast<long>(worker.world_size),
                static_cast<long>(worker.local_rank), static_cast<long>(worker.attempt),
                std::string(name_of(worker.started_by)).c_str(), failures == 0 ? "good" : "WRONG");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
  return failures == 0 ? 0 : 1;
}
