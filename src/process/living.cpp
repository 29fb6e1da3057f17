#include "process/living.h"

#include <atomic>

namespace hasten {
namespace {

std::atomic<std::int64_t>& counter(Living kind) {
  static std::atomic<std::int64_t> accelerators = 0, groups = 0, tpus = 0;
  return kind == Living::accelerator ? accelerators : kind == Living::group ? groups : tpus;
}

}  // namespace

std::int64_t number_of(Living kind) { return counter(kind); }

LivingMark::LivingMark(Living kind) : kind_(kind) { ++counter(kind_); }
LivingMark::~LivingMark() { --counter(kind_); }

}  // namespace hasten
