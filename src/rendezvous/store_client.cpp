#include "rendezvous/store_client.h"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "base/running_clock.h"
#include "base/seconds.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "rendezvous/backoff.h"
#include "rendezvous/connect_attempt.h"
#include "rendezvous/job_server.h"

namespace hasten::rendezvous {
namespace {

constexpr auto kHandshakeTimeout = std::chrono::seconds(30);  // A suspended server answers late.
constexpr auto kConnectTimeout = std::chrono::seconds(5);
constexpr int kClockInterval = 1000;  // Milliseconds between two readings of a RunningClock.
constexpr auto kMinRetryPause = std::chrono::milliseconds(5);
constexpr auto kMaxRetryPause = std::chrono::milliseconds(500);

// Returns the connected socket, or why there is none.
ConnectResult connect_socket(const Endpoint& store, RunningClock& clock,
                             Clock::time_point deadline) {
  const auto left = std::clamp<Clock::duration>(deadline - clock.now(),
                                                std::chrono::milliseconds(1), kConnectTimeout);
  ConnectAttempt attempt(store, Clock::now() + left);
  while (!attempt.done()) {
    pollfd file{.fd = attempt.descriptor(), .events = attempt.events(), .revents = 0};
    poll(&file, 1, std::min(attempt.longest_wait(), kClockInterval));
    attempt.advance();
    clock.now();
  }
  return attempt.take();
}

}  // namespace

StoreClient::StoreClient(Endpoint store, std::string token, std::chrono::milliseconds timeout,
                         std::chrono::milliseconds response_timeout)
    : store_(std::move(store)),
      token_(std::move(token)),
      response_timeout_(response_timeout),
      context_(Side::client, token_) {
  connect(timeout);
}

void StoreClient::connect(std::chrono::milliseconds timeout) {
  RunningClock clock;  // A rank that is suspended while it connects continues when it wakes up.
  const auto deadline = clock.now() + timeout;
  Backoff backoff(kMinRetryPause, kMaxRetryPause);
  while (!try_to_connect(clock, deadline)) {
    const auto pause = backoff.next();
    if (clock.now() + pause >= deadline) {
      throw IoError("rendezvous.connect",
                    {.what = "the job's store at " + to_text(store_),
                     .got = last_failure_,
                     .expected = str("an answer within ", fixed(seconds_of(timeout), 1), " s")});
    }
    std::this_thread::sleep_for(pause);
  }
}

bool StoreClient::try_to_connect(RunningClock& clock, Clock::time_point deadline) {
  const ConnectResult result = connect_socket(store_, clock, deadline);
  last_failure_ = result.error;
  if (result.socket < 0) return false;
  connection_ = std::make_unique<Connection>(result.socket, context_);
  connection_->send(kStoreGreeting);
  const auto until = std::min(deadline, clock.now() + kHandshakeTimeout);
  connection_->flush(clock, until);
  if (connection_->was_rejected()) {
    throw IoError("rendezvous.refused",
                  {.what = str("the job's store at ", to_text(store_),
                               " has refused this process: ", connection_->close_reason()),
                   .hint = "HASTEN_JOB_TOKEN must be the same in every process of the job"});
  }
  return receive_greeting(clock, until);
}

bool StoreClient::receive_greeting(RunningClock& clock, Clock::time_point deadline) {
  std::string greeting;
  try {
    greeting = connection_->receive(clock, deadline, "the store's greeting");
  } catch (const IoError&) {
    last_failure_ = connection_->is_open()
                        ? "no answer"
                        : str("a busy server (", connection_->close_reason(), ")");
    return false;
  }
  if (greeting == kStoreGreeting) return true;
  throw IoError("rendezvous.version",
                {.what = "the job's store at " + to_text(store_),
                 .got = str("protocol '", greeting, "'"),
                 .expected = str("protocol '", kStoreGreeting, "'"),
                 .hint = "use the same version of hasten for the launchers and all ranks"});
}

Packer StoreClient::request(StoreRequest kind) {
  Packer packer;
  packer.number(++number_).number(static_cast<std::int64_t>(kind));
  return packer;
}

Unpacker StoreClient::call(const Packer& request, std::string_view what,
                           std::chrono::milliseconds timeout) {
  connection_->send(request.bytes());
  RunningClock clock;  // A job that is suspended while its ranks wait continues when it wakes up.
  const auto deadline = clock.now() + timeout + response_timeout_;
  Unpacker fields("");
  do {
    answer_ = connection_->receive(clock, deadline, what);
    fields = Unpacker(answer_);
  } while (fields.number() != number_);  // Skips answers to requests that have timed out.
  const auto kind = static_cast<StoreStatus>(fields.number());
  if (kind == StoreStatus::missing) {
    const bool more = fields.number() != 0;
    throw IoError(
        "rendezvous.time",
        {.what = "waiting for keys of the job's store",
         .got = str("no ", join(fields.texts(), ", "), more ? " and others" : "", " within ",
                    fixed(seconds_of(timeout), 1), " s"),
         .hint = "check whether the ranks that set them have started and are still running"});
  }
  if (kind != StoreStatus::done)
    throw UsageError("rendezvous.store", {.what = str("the request ", what, " to the job's store"),
                                          .got = str("the refusal \"", fields.text(), "\""),
                                          .expected = "the result"});
  return fields;
}

void StoreClient::set(std::string_view key, std::string_view value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  call(request(StoreRequest::set).text(key).text(value), "set").expect_end();
}

std::vector<std::string> StoreClient::get(const std::vector<std::string>& keys,
                                          std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::get).number(timeout.count()).texts(keys), "get", timeout)
      .texts();
}

void StoreClient::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  call(request(StoreRequest::wait).number(timeout.count()).texts(keys), "wait", timeout)
      .expect_end();
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t number) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::add).text(key).number(number), "add").number();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::compare_set).text(key).text(expected).text(desired),
              "compare_set")
      .text();
}

void StoreClient::append(std::string_view key, std::string_view value) {
  const std::lock_guard<std::mutex> lock(mutex_);
  call(request(StoreRequest::append).text(key).text(value), "append").expect_end();
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::check).texts(keys), "check").number() != 0;
}

bool StoreClient::erase(std::string_view key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::erase).text(key), "erase").number() != 0;
}

std::int64_t StoreClient::count() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::count), "count").number();
}

std::vector<std::string> StoreClient::list() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return call(request(StoreRequest::list), "list").texts();
}

}  // namespace hasten::rendezvous
