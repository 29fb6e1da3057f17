#include "rendezvous/store_table.h"

#include <algorithm>
#include <charconv>
#include <vector>

namespace hasten::rendezvous {
namespace {

// With room for its key in the message that has brought it or will bring it away.
constexpr std::size_t kLongestValue = kLongestMessage - (std::size_t{1} << 10);
constexpr std::size_t kMostNamed = 16;  // keys in the answer to who has waited too long

Packer answer_to(std::int64_t number, StoreAnswer kind = StoreAnswer::done) {
  Packer packer;
  packer.number(number).number(static_cast<std::int64_t>(kind));
  return packer;
}

// c10d keeps numbers as decimal text; a missing one is zero.
std::optional<std::int64_t> number_in(std::string_view text) {
  if (text.empty()) return 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The texts that follow their count: checked, and without the count.
std::string_view packed_texts(Unpacker& fields) {
  const auto count = static_cast<std::uint64_t>(fields.number());
  const std::string_view begin = fields.rest();
  for (std::uint64_t i = 0; i < count; ++i) fields.view();
  return begin.substr(0, begin.size() - fields.rest().size());
}

}  // namespace

void StoreTable::handle(int connection, std::string_view message, Clock::time_point now) {
  Unpacker fields(message);
  const Question question{.connection = connection, .number = fields.number()};
  const auto request = static_cast<StoreRequest>(fields.number());
  stop_waiting(connection);
  answer_request(question, request, fields, now);
}

void StoreTable::answer_request(const Question& question, StoreRequest request, Unpacker& fields,
                                Clock::time_point now) {
  switch (request) {
    case StoreRequest::set:
      return set(question, fields);
    case StoreRequest::get:
      return get_or_wait(question, fields, /*wants_values=*/true, now);
    case StoreRequest::wait:
      return get_or_wait(question, fields, /*wants_values=*/false, now);
    case StoreRequest::add:
      return add(question, fields);
    case StoreRequest::compare_set:
      return compare_set(question, fields);
    case StoreRequest::append:
      return append(question, fields);
    case StoreRequest::check:
      return check(question, fields);
    case StoreRequest::erase:
      return tell(question, answer_to(question.number)
                                .number(static_cast<std::int64_t>(values_.erase(fields.text()))));
    case StoreRequest::count:
      return tell(question,
                  answer_to(question.number).number(static_cast<std::int64_t>(values_.size())));
    case StoreRequest::list:
      return list(question);
  }
  refuse(question, "an unknown request");
}

void StoreTable::tell(const Question& question, const Packer& answer) {
  if (answer.bytes().size() > kLongestMessage)
    return refuse(question, "an answer that is longer than a message may be");
  reply_(question.connection, answer.bytes());
}

void StoreTable::refuse(const Question& question, std::string_view why) {
  reply_(question.connection, answer_to(question.number, StoreAnswer::refused).text(why).bytes());
}

void StoreTable::set(const Question& question, Unpacker& fields) {
  const std::string key = fields.text();
  values_[key] = fields.text();
  tell(question, answer_to(question.number));
  wake_waiters(key);
}

void StoreTable::get_or_wait(const Question& question, Unpacker& fields, bool wants_values,
                             Clock::time_point now) {
  const std::int64_t longest = std::clamp<std::int64_t>(fields.number(), 0, std::int64_t{1} << 40);
  Waiting waiting{.question = question,
                  .deadline = now + std::chrono::milliseconds(longest),
                  .wants_values = wants_values,
                  .keys = kept(packed_texts(fields))};
  if (finds_all(waiting)) return answer_waiting(waiting);
  waiters_[waiting.missing].insert(question.connection);
  deadlines_.emplace(waiting.deadline, question.connection);
  waiting_.emplace(question.connection, std::move(waiting));
}

void StoreTable::add(const Question& question, Unpacker& fields) {
  const std::string key = fields.text();
  const std::int64_t more = fields.number();
  const auto found = values_.find(key);
  const auto before = number_in(found == values_.end() ? "" : std::string_view(found->second));
  if (!before) return refuse(question, key + " holds no number");
  const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(*before) +
                                             static_cast<std::uint64_t>(more));
  values_[key] = std::to_string(sum);
  tell(question, answer_to(question.number).number(sum));
  wake_waiters(key);
}

void StoreTable::compare_set(const Question& question, Unpacker& fields) {
  const std::string key = fields.text(), expected = fields.text(), desired = fields.text();
  const bool is_missing = !values_.contains(key);
  // As in TCPStore, a missing key is set if nothing was expected; otherwise the answer is what was
  // expected.
  if (is_missing && !expected.empty())
    return tell(question, answer_to(question.number).text(expected));
  std::string& value = values_[key];
  if (is_missing || value == expected) value = desired;
  tell(question, answer_to(question.number).text(value));
  wake_waiters(key);
}

void StoreTable::append(const Question& question, Unpacker& fields) {
  const std::string key = fields.text();
  const std::string_view more = fields.view();
  const auto found = values_.find(key);
  if (found != values_.end() && found->second.size() + more.size() > kLongestValue)
    return refuse(question, key + " would be too long");
  values_[key] += more;
  tell(question, answer_to(question.number));
  wake_waiters(key);
}

void StoreTable::check(const Question& question, Unpacker& fields) {
  Unpacker keys(packed_texts(fields));
  bool all = true;
  while (all && !keys.is_at_end()) all = values_.contains(keys.view());
  tell(question, answer_to(question.number).number(all));
}

void StoreTable::list(const Question& question) {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& [name, value] : values_) names.push_back(name);
  std::sort(names.begin(), names.end());
  tell(question, answer_to(question.number).texts(names));
}

// Whether no key is missing. A key that was there may have been erased since, hence a second look
// at those before.
bool StoreTable::finds_all(Waiting& waiting) const {
  const bool from_the_first = waiting.next == 0;
  if (!reaches_end(waiting)) return false;
  waiting.next = 0;
  return from_the_first || reaches_end(waiting);
}

bool StoreTable::reaches_end(Waiting& waiting) const {
  Unpacker keys(std::string_view(*waiting.keys).substr(waiting.next));
  while (!keys.is_at_end()) {
    const std::size_t at = waiting.keys->size() - keys.rest().size();
    const std::string_view key = keys.view();
    if (values_.contains(key)) continue;
    waiting.next = at;
    waiting.missing = key;
    return false;
  }
  return true;
}

void StoreTable::answer_waiting(const Waiting& waiting) {
  Packer answer = answer_to(waiting.question.number);
  if (!waiting.wants_values) return tell(waiting.question, answer);
  std::vector<std::string_view> values;
  std::size_t size = 0;
  for (Unpacker keys(*waiting.keys); !keys.is_at_end();) {
    values.push_back(values_.find(keys.view())->second);
    size += values.back().size() + sizeof(std::int64_t);
  }
  // A few bytes may ask for a key many times.
  if (size > kLongestMessage)
    return refuse(waiting.question, "values that are too long for one answer");
  answer.number(static_cast<std::int64_t>(values.size()));
  for (const std::string_view value : values) answer.text(value);
  tell(waiting.question, answer);
}

void StoreTable::wake_waiters(std::string_view key) {
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  for (const int connection : found->second) {
    waiting_.at(connection).is_woken = true;
    woken_.push_back(connection);
  }
  waiters_.erase(found);
}

void StoreTable::answer_woken() {
  const int connection = woken_.front();
  woken_.pop_front();
  const auto found = waiting_.find(connection);
  if (found == waiting_.end() || !found->second.is_woken) return;  // it has given up meanwhile
  Waiting& waiting = found->second;
  if (finds_all(waiting)) {
    answer_waiting(waiting);
    return stop_waiting(connection);
  }
  waiting.is_woken = false;
  waiters_[waiting.missing].insert(connection);
}

std::shared_ptr<const std::string> StoreTable::kept(std::string_view keys) {
  if (!last_keys_ || *last_keys_ != keys) last_keys_ = std::make_shared<const std::string>(keys);
  return last_keys_;
}

void StoreTable::stop_waiting(int connection) {
  const auto found = waiting_.find(connection);
  if (found == waiting_.end()) return;
  const Waiting& waiting = found->second;
  if (const auto waiters = waiters_.find(waiting.missing); waiters != waiters_.end()) {
    waiters->second.erase(connection);
    if (waiters->second.empty()) waiters_.erase(waiters);
  }
  deadlines_.erase({waiting.deadline, connection});
  waiting_.erase(found);
}

void StoreTable::forget(int connection) { stop_waiting(connection); }

void StoreTable::tell_missing(const Waiting& waiting) {
  std::vector<std::string> names;
  Unpacker keys(*waiting.keys);
  while (names.size() <= kMostNamed && !keys.is_at_end()) {
    const std::string_view key = keys.view();
    if (!values_.contains(key)) names.emplace_back(key);
  }
  const bool more = names.size() > kMostNamed;
  if (more) names.pop_back();
  tell(waiting.question,
       answer_to(waiting.question.number, StoreAnswer::missing).number(more).texts(names));
}

void StoreTable::tick(Clock::time_point now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const int connection = deadlines_.begin()->second;
    Waiting& waiting = waiting_.at(connection);
    finds_all(waiting) ? answer_waiting(waiting) : tell_missing(waiting);
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
  waiters_.clear();
  woken_.clear();
  last_keys_.reset();
  deadlines_.clear();
}

}  // namespace hasten::rendezvous
