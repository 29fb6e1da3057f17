#include "process/watch/watchdog.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "unit/code_of.h"
#include "unit/thread_shortage.h"

namespace process_watchdog_test {

using namespace hasten;

TEST_CASE("watchdog: it says that it gets no thread, or only one of two") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const RankOptions options{.rank = 0, .size = 2, .limit = std::chrono::minutes(1)};
  for (const std::size_t left : {0, 1}) {
    const ThreadShortage shortage(left);
    CHECK(code_of([&] { const Watchdog watchdog(store, std::make_shared<CallLog>(), options); }) ==
          "io.thread");
  }
}

}  // namespace process_watchdog_test
