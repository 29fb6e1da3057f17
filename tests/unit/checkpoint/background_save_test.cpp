#include "checkpoint/background_save.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <stdexcept>

namespace checkpoint_background_save_test {

using namespace hasten;

TEST_CASE("background save: wait() returns what the work has thrown") {
  BackgroundSave save;
  CHECK(save.wait() == nullptr);
  save.start([] { throw std::runtime_error("the disk is full"); });
  CHECK(save.is_in_flight());
  CHECK_THROWS_AS(std::rethrow_exception(save.wait()), std::runtime_error);
  CHECK_FALSE(save.is_in_flight());
}

TEST_CASE("background save: a fork does not wait for the save of its parent") {
  std::promise<void> may_end;
  BackgroundSave save;
  save.start([&] { may_end.get_future().wait(); });
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // ends a fork that waits
    _exit(save.has_finished() && save.wait() == nullptr ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK_FALSE(save.has_finished());
  may_end.set_value();
  CHECK(save.wait() == nullptr);
}

}  // namespace checkpoint_background_save_test
