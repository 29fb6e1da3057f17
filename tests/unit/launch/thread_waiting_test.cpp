#include "launch/thread_waiting.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace launch_thread_waiting_test {

using hasten::thread_waiting_variable;

namespace {

// Sets or removes a variable, and restores it at the end of the test.
class WaitingVariable {
 public:
  WaitingVariable(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) before_ = before;
    value ? setenv(name_.c_str(), value, 1) : unsetenv(name_.c_str());
  }
  WaitingVariable(const WaitingVariable&) = delete;
  WaitingVariable& operator=(const WaitingVariable&) = delete;
  ~WaitingVariable() {
    before_ ? setenv(name_.c_str(), before_->c_str(), 1) : unsetenv(name_.c_str());
  }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("thread waiting: spinning is limited unless the user has chosen") {
  const WaitingVariable no_policy("OMP_WAIT_POLICY", nullptr);
  const WaitingVariable no_count("GOMP_SPINCOUNT", nullptr);
  const auto variable = thread_waiting_variable();
  REQUIRE(variable.has_value());
  CHECK(variable->first == "GOMP_SPINCOUNT");
  CHECK(std::stol(variable->second) > 0);
  CHECK(std::stol(variable->second) < 300000);  // libgomp's default
  {
    const WaitingVariable policy("OMP_WAIT_POLICY", "active");
    CHECK_FALSE(thread_waiting_variable().has_value());
  }
  {
    const WaitingVariable count("GOMP_SPINCOUNT", "5");
    CHECK_FALSE(thread_waiting_variable().has_value());
  }
}

}  // namespace launch_thread_waiting_test
