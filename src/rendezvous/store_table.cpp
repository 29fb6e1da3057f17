#include "rendezvous/store_table.h"

#include <algorithm>
#include <vector>

#include "base/parse_number.h"
#include "hasten/base/text.h"

namespace hasten::rendezvous {
namespace {

// Leaves room for the key in the message that carries the value.
constexpr std::size_t kMaxValueBytes = kMaxMessageBytes - (std::size_t{1} << 10);
constexpr std::size_t kMaxNamedKeys = 16;  // Keys in the answer to a request that timed out.

Packer answer_to(std::int64_t number, StoreStatus kind = StoreStatus::done) {
  Packer packer;
  packer.number(number).number(static_cast<std::int64_t>(kind));
  return packer;
}

// c10d stores numbers as decimal text; a missing one is zero.
std::optional<std::int64_t> number_in(std::string_view text) {
  return text.empty() ? 0 : parse_number<std::int64_t>(text);
}

// Reads texts and checks their lengths. Returns them packed, without their count.
std::string_view read_packed_texts(Unpacker& fields) {
  const auto count = static_cast<std::uint64_t>(fields.number());
  const std::string_view begin = fields.rest();
  for (std::uint64_t i = 0; i < count; ++i) fields.text_view();
  return begin.substr(0, begin.size() - fields.rest().size());
}

}  // namespace

void StoreTable::handle(int connection, std::string_view message, Clock::time_point now) {
  Unpacker fields(message);
  const RequestId id{.connection = connection, .number = fields.number()};
  const auto request = static_cast<StoreRequest>(fields.number());
  stop_waiting(connection);
  const bool changes = request != StoreRequest::get && request != StoreRequest::wait &&
                       request != StoreRequest::check;
  changes_ += changes;
  answer_request(id, request, fields, now);
}

void StoreTable::answer_request(const RequestId& id, StoreRequest request, Unpacker& fields,
                                Clock::time_point now) {
  switch (request) {
    case StoreRequest::set:
      return set(id, fields);
    case StoreRequest::get:
      return get_or_wait(id, fields, /*wants_values=*/true, now);
    case StoreRequest::wait:
      return get_or_wait(id, fields, /*wants_values=*/false, now);
    case StoreRequest::add:
      return add(id, fields);
    case StoreRequest::compare_set:
      return compare_set(id, fields);
    case StoreRequest::append:
      return append(id, fields);
    case StoreRequest::check:
      return check(id, fields);
    case StoreRequest::erase:
      // A key that existed completes the requests for it, even if they are not answered yet.
      while (has_ready_request()) answer_ready_request();
      return reply(
          id, answer_to(id.number).number(static_cast<std::int64_t>(values_.erase(fields.text()))));
    case StoreRequest::count:
      return reply(id, answer_to(id.number).number(static_cast<std::int64_t>(values_.size())));
    case StoreRequest::list:
      return list(id);
  }
  reply_refused(id, "it is unknown");
}

void StoreTable::reply(const RequestId& id, const Packer& answer) {
  if (answer.bytes().size() > kMaxMessageBytes)
    return reply_refused(id, "the answer would exceed the maximum length of a message");
  reply_(id.connection, answer.bytes());
}

void StoreTable::reply_refused(const RequestId& id, std::string_view why) {
  reply_(id.connection, answer_to(id.number, StoreStatus::refused).text(why).bytes());
}

void StoreTable::set(const RequestId& id, Unpacker& fields) {
  const std::string key = fields.text();
  values_[key] = fields.text();
  reply(id, answer_to(id.number));
  mark_waiters_ready(key);
}

void StoreTable::get_or_wait(const RequestId& id, Unpacker& fields, bool wants_values,
                             Clock::time_point now) {
  const std::int64_t timeout = std::clamp<std::int64_t>(fields.number(), 0, std::int64_t{1} << 40);
  const std::string_view keys = read_packed_texts(fields);
  auto found = lists_.find(keys);
  if (found == lists_.end()) {
    KeyList fresh{.keys = keys};
    if (is_complete(fresh)) return answer_from(fresh, id, wants_values);
    found = lists_.emplace(std::string(keys), std::move(fresh)).first;
    found->second.keys = found->first;
    wait_for_missing(found->second);
  }
  KeyList& list = found->second;
  const auto deadline = now + std::chrono::milliseconds(timeout);
  list.waiting.insert(id.connection);
  deadlines_.emplace(deadline, id.connection);
  waiting_.emplace(
      id.connection,
      WaitingRequest{.id = id, .deadline = deadline, .wants_values = wants_values, .list = &list});
}

void StoreTable::add(const RequestId& id, Unpacker& fields) {
  const std::string key = fields.text();
  const std::int64_t more = fields.number();
  const auto found = values_.find(key);
  const auto before = number_in(found == values_.end() ? "" : std::string_view(found->second));
  if (!before) return reply_refused(id, str("the value of ", key, " is not a number"));
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(*before) +
                                             static_cast<std::uint64_t>(more));
  values_[key] = std::to_string(sum);
  reply(id, answer_to(id.number).number(sum));
  mark_waiters_ready(key);
}

void StoreTable::compare_set(const RequestId& id, Unpacker& fields) {
  const std::string key = fields.text(), expected = fields.text(), desired = fields.text();
  const bool is_missing = !values_.contains(key);
  // As in TCPStore, a missing key is set if nothing was expected; otherwise the answer is the
  // expected value.
  if (is_missing && !expected.empty()) return reply(id, answer_to(id.number).text(expected));
  std::string& value = values_[key];
  if (is_missing || value == expected) value = desired;
  reply(id, answer_to(id.number).text(value));
  mark_waiters_ready(key);
}

void StoreTable::append(const RequestId& id, Unpacker& fields) {
  const std::string key = fields.text();
  const std::string_view more = fields.text_view();
  const auto found = values_.find(key);
  if (found != values_.end() && found->second.size() + more.size() > kMaxValueBytes)
    return reply_refused(id, str("the value of ", key, " would exceed the maximum length"));
  values_[key] += more;
  reply(id, answer_to(id.number));
  mark_waiters_ready(key);
}

void StoreTable::check(const RequestId& id, Unpacker& fields) {
  Unpacker keys(read_packed_texts(fields));
  bool all = true;
  while (all && !keys.is_at_end()) all = values_.contains(keys.text_view());
  reply(id, answer_to(id.number).number(all));
}

void StoreTable::list(const RequestId& id) {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& [name, value] : values_) names.push_back(name);
  std::sort(names.begin(), names.end());
  reply(id, answer_to(id.number).texts(names));
}

// Returns whether all keys exist. Keys before `next` may have been erased since, so they are
// checked again.
bool StoreTable::is_complete(KeyList& list) const {
  if (list.complete_at == changes_) return true;
  const bool from_the_first = list.next == 0;
  if (!reaches_end(list)) return false;
  list.next = 0;
  if (!from_the_first && !reaches_end(list)) return false;
  list.complete_at = changes_;
  return true;
}

bool StoreTable::reaches_end(KeyList& list) const {
  Unpacker keys(list.keys.substr(list.next));
  while (!keys.is_at_end()) {
    const std::size_t at = list.keys.size() - keys.rest().size();
    const std::string_view key = keys.text_view();
    if (values_.contains(key)) continue;
    list.next = at;
    list.missing = key;
    return false;
  }
  return true;
}

void StoreTable::pack_values(KeyList& list) const {
  std::vector<std::string_view> values;
  std::size_t size = 3 * sizeof(std::int64_t);  // The fields before the values.
  for (Unpacker keys(list.keys); !keys.is_at_end();) {
    values.push_back(values_.find(keys.text_view())->second);
    size += values.back().size() + sizeof(std::int64_t);
  }
  list.packed_at = changes_;
  list.values.clear();
  // A short request can name one key many times.
  list.values_too_long = size > kMaxMessageBytes;
  if (list.values_too_long) return;
  Packer packer;
  packer.number(static_cast<std::int64_t>(values.size()));
  for (const std::string_view value : values) packer.text(value);
  list.values = packer.bytes();
}

void StoreTable::answer_from(KeyList& list, const RequestId& id, bool wants_values) {
  if (!wants_values) return reply(id, answer_to(id.number));
  if (list.packed_at != changes_) pack_values(list);
  if (list.values_too_long)
    return reply_refused(id, "the values exceed the maximum length of an answer");
  reply(id, answer_to(id.number).append_packed(list.values));
}

void StoreTable::wait_for_missing(KeyList& list) {
  list.is_ready = false;
  lists_by_missing_key_[list.missing].insert(&list);
}

void StoreTable::mark_waiters_ready(std::string_view key) {
  const auto found = lists_by_missing_key_.find(key);
  if (found == lists_by_missing_key_.end()) return;
  for (KeyList* const list : found->second) {
    list->is_ready = true;
    ready_.push_back(list);
  }
  lists_by_missing_key_.erase(found);
}

void StoreTable::answer_ready_request() {
  KeyList& list = *ready_.front();
  if (!is_complete(list)) {
    ready_.pop_front();
    return wait_for_missing(list);
  }
  const WaitingRequest& waiting = waiting_.at(*list.waiting.begin());
  answer_from(list, waiting.id, waiting.wants_values);
  stop_waiting(waiting.id.connection);
}

// A list is removed with its last request.
void StoreTable::stop_waiting(int connection) {
  const auto found = waiting_.find(connection);
  if (found == waiting_.end()) return;
  KeyList& list = *found->second.list;
  deadlines_.erase({found->second.deadline, connection});
  waiting_.erase(found);
  list.waiting.erase(connection);
  if (!list.waiting.empty()) return;
  if (list.is_ready) {
    ready_.erase(std::find(ready_.begin(), ready_.end(), &list));
  } else {
    const auto lists = lists_by_missing_key_.find(list.missing);
    lists->second.erase(&list);
    if (lists->second.empty()) lists_by_missing_key_.erase(lists);
  }
  lists_.erase(lists_.find(list.keys));
}

void StoreTable::remove_connection(int connection) { stop_waiting(connection); }

void StoreTable::reply_missing(const WaitingRequest& waiting) {
  std::vector<std::string> names;
  Unpacker keys(waiting.list->keys);
  while (names.size() <= kMaxNamedKeys && !keys.is_at_end()) {
    const std::string_view key = keys.text_view();
    if (!values_.contains(key)) names.emplace_back(key);
  }
  const bool more = names.size() > kMaxNamedKeys;
  if (more) names.pop_back();
  reply(waiting.id, answer_to(waiting.id.number, StoreStatus::missing).number(more).texts(names));
}

void StoreTable::tick(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const int connection = deadlines_.begin()->second;
    const WaitingRequest& waiting = waiting_.at(connection);
    if (waiting.list->is_ready && is_complete(*waiting.list)) {
      answer_from(*waiting.list, waiting.id, waiting.wants_values);
    } else {
      reply_missing(waiting);
    }
    stop_waiting(connection);
  }
}

std::optional<Clock::time_point> StoreTable::next_deadline() const {
  if (deadlines_.empty()) return std::nullopt;
  return deadlines_.begin()->first;
}

void StoreTable::clear() {
  values_.clear();
  waiting_.clear();
  lists_.clear();
  lists_by_missing_key_.clear();
  ready_.clear();
  deadlines_.clear();
}

}  // namespace hasten::rendezvous
