#include "rendezvous/poller.h"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/descriptor.h"

namespace rendezvous_poller_test {

using namespace hasten;
using namespace hasten::rendezvous;

TEST_CASE("poller: it reports the files that are ready, and those that the kernel refuses") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  const Descriptor reader(ends[0]), writer(ends[1]);
  Poller poller;
  CHECK_FALSE(poller.change(writer.get(), 1, POLLOUT));  // it is not watched yet
  CHECK(poller.watch(writer.get(), 1, POLLIN));
  CHECK(poller.wait(0).empty());
  CHECK(poller.change(writer.get(), 1, POLLOUT));
  CHECK(poller.wait(0) == std::vector<std::uint64_t>{1});
  poller.remove(writer.get());
  CHECK(poller.wait(0).empty());
}

}  // namespace rendezvous_poller_test
