#include "process/fork/fork_hazards.h"

#include <atomic>

namespace hasten {
namespace {

std::atomic<std::int64_t>& counter(ForkHazard kind) {
  static std::atomic<std::int64_t> accelerators = 0, groups = 0, tpus = 0;
  return kind == ForkHazard::accelerator ? accelerators : kind == ForkHazard::group ? groups : tpus;
}

}  // namespace

std::int64_t count_of(ForkHazard kind) { return counter(kind); }

ForkHazardMark::ForkHazardMark(ForkHazard kind) : kind_(kind) { ++counter(kind_); }
ForkHazardMark::~ForkHazardMark() { --counter(kind_); }

}  // namespace hasten
