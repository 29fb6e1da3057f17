#include "rendezvous/store_client.h"

#include <algorithm>
#include <thread>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

constexpr auto kForAnAnswer = std::chrono::seconds(30);  // beside what the store itself waits

Packer request(StoreRequest kind) {
  Packer packer;
  packer.number(static_cast<std::int64_t>(kind));
  return packer;
}

}  // namespace

StoreClient::StoreClient(Endpoint store, std::string token, std::chrono::milliseconds timeout)
    : store_(std::move(store)), token_(std::move(token)), context_(Side::client, token_) {
  const auto deadline = Clock::now() + timeout;
  auto pause = std::chrono::milliseconds(5);
  while (true) {
    const auto left = std::chrono::duration<double>(deadline - Clock::now()).count();
    const Attempted attempted = connect_to(store_, std::clamp(left, 0.001, 5.0));
    if (attempted.socket >= 0) {
      connection_ = std::make_unique<Connection>(attempted.socket, context_);
      connection_->send("store");
      connection_->flush(deadline);
      if (connection_->known()) break;
      if (!connection_->open()) {
        throw IoError(
            "rendezvous.refused",
            {.what = "the job's store at " + text_of(store_) + " has refused this process",
             .got = connection_->why_closed(),
             .hint = "HASTEN_JOB_TOKEN must be the same in every process of the job"});
      }
    }
    if (Clock::now() + pause >= deadline) {
      throw IoError(
          "rendezvous.connect",
          {.what = "the job's store at " + text_of(store_),
           .got = attempted.why.empty() ? "no answer" : attempted.why,
           .expected = str("an answer within ",
                           fixed(std::chrono::duration<double>(timeout).count(), 1), " s")});
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(500));
  }
}

Unpacker StoreClient::ask(const Packer& request, std::string_view what,
                          std::chrono::milliseconds longest) {
  connection_->send(request.bytes());
  answer_ = connection_->receive(Clock::now() + longest + kForAnAnswer, what);
  Unpacker fields(answer_);
  const auto kind = static_cast<StoreAnswer>(fields.number());
  if (kind == StoreAnswer::missing) {
    throw IoError("rendezvous.time",
                  {.what = str("keys that did not come within ",
                               fixed(std::chrono::duration<double>(longest).count(), 1), " s"),
                   .got = join(fields.texts(), ", "),
                   .hint = "a rank that has not started, or has ended, would have set them"});
  }
  if (kind != StoreAnswer::done)
    throw UsageError("rendezvous.store",
                     {.what = str("the store refuses ", what), .got = fields.text()});
  return fields;
}

void StoreClient::set(std::string_view key, std::string_view value) {
  const std::lock_guard<std::mutex> turn(turn_);
  ask(request(StoreRequest::set).text(key).text(value), "set").end();
}

std::vector<std::string> StoreClient::get(const std::vector<std::string>& keys,
                                          std::chrono::milliseconds longest) {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::get).number(longest.count()).texts(keys), "get", longest)
      .texts();
}

void StoreClient::wait(const std::vector<std::string>& keys, std::chrono::milliseconds longest) {
  const std::lock_guard<std::mutex> turn(turn_);
  ask(request(StoreRequest::wait).number(longest.count()).texts(keys), "wait", longest).end();
}

std::int64_t StoreClient::add(std::string_view key, std::int64_t number) {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::add).text(key).number(number), "add").number();
}

std::string StoreClient::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::compare_set).text(key).text(expected).text(desired),
             "compare_set")
      .text();
}

void StoreClient::append(std::string_view key, std::string_view value) {
  const std::lock_guard<std::mutex> turn(turn_);
  ask(request(StoreRequest::append).text(key).text(value), "append").end();
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::check).texts(keys), "check").number() != 0;
}

bool StoreClient::erase(std::string_view key) {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::erase).text(key), "erase").number() != 0;
}

std::int64_t StoreClient::count() {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::count), "count").number();
}

std::vector<std::string> StoreClient::list() {
  const std::lock_guard<std::mutex> turn(turn_);
  return ask(request(StoreRequest::list), "list").texts();
}

}  // namespace hasten::rendezvous
