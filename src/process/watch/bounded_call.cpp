#include "process/watch/bounded_call.h"

#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace hasten {

bool completes_within(std::chrono::milliseconds limit, std::function<void()> function) {
  struct Call {
    std::function<void()> function;
    std::promise<void> completed;
  };
  const auto call = std::make_shared<Call>();
  call->function = std::move(function);
  const auto completed = call->completed.get_future();
  try {
    std::thread([call] {
      call->function();
      call->completed.set_value();
    }).detach();
  } catch (const std::system_error&) {
    call->function();
    return true;
  }
  return completed.wait_for(limit) == std::future_status::ready;
}

}  // namespace hasten
