#include "rendezvous/store_table.h"

#include <algorithm>
#include <charconv>

#include "rendezvous/message.h"

namespace hasten::rendezvous {
namespace {

Packer answer(StoreAnswer kind = StoreAnswer::done) {
  Packer packer;
  packer.number(static_cast<std::int64_t>(kind));
  return packer;
}

// With room for its key in the message that has brought it or will bring it away.
constexpr std::size_t kLongestValue = kLongestMessage - (std::size_t{1} << 10);

// c10d keeps numbers as decimal text; a missing one is zero.
std::optional<std::int64_t> number_in(std::string_view text) {
  if (text.empty()) return 0;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void StoreTable::handle(int connection, std::string_view message, Clock::time_point now) {
  Unpacker fields(message);
  const auto request = static_cast<StoreRequest>(fields.number());
  const auto tell = [&](const Packer& packer) { reply_(connection, packer.bytes()); };
  switch (request) {
    case StoreRequest::set: {
      const std::string key = fields.text();
      values_[key] = fields.text();
      tell(answer());
      return changed();
    }
    case StoreRequest::get:
    case StoreRequest::wait: {
      const std::int64_t longest =
          std::clamp<std::int64_t>(fields.number(), 0, std::int64_t{1} << 40);
      Waiting waiting{.connection = connection,
                      .deadline = now + std::chrono::milliseconds(longest),
                      .keys = fields.texts(),
                      .wants_values = request == StoreRequest::get};
      if (try_answer(waiting)) return;
      if (is_waiting(connection))
        return tell(
            answer(StoreAnswer::refused).text("a second wait before the first one's answer"));
      waiting_.push_back(std::move(waiting));
      return;
    }
    case StoreRequest::add: {
      const std::string key = fields.text();
      const std::int64_t more = fields.number();
      const auto before = number_in(values_[key]);
      if (!before) return tell(answer(StoreAnswer::refused).text(key + " holds no number"));
      const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(*before) +
                                                 static_cast<std::uint64_t>(more));
      values_[key] = std::to_string(sum);
      tell(answer().number(sum));
      return changed();
    }
    case StoreRequest::compare_set: {
      const std::string key = fields.text(), expected = fields.text(), desired = fields.text();
      const auto found = values_.find(key);
      // As TCPStore: a missing key is set where nothing was expected, else what was expected is
      // told.
      if (found == values_.end()) {
        if (!expected.empty()) return tell(answer().text(expected));
        values_[key] = desired;
      } else if (found->second == expected) {
        found->second = desired;
      }
      tell(answer().text(values_[key]));
      return changed();
    }
    case StoreRequest::append: {
      const std::string key = fields.text(), more = fields.text();
      const auto found = values_.find(key);
      if (found != values_.end() && found->second.size() + more.size() > kLongestValue)
        return tell(answer(StoreAnswer::refused).text(key + " would be too long"));
      values_[key] += more;
      tell(answer());
      return changed();
    }
    case StoreRequest::check: {
      const auto keys = fields.texts();
      return tell(
          answer().number(std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
            return values_.count(key) > 0;
          })));
    }
    case StoreRequest::erase:
      return tell(answer().number(static_cast<std::int64_t>(values_.erase(fields.text()))));
    case StoreRequest::count:
      return tell(answer().number(static_cast<std::int64_t>(values_.size())));
    case StoreRequest::list: {
      std::vector<std::string> names;
      for (const auto& [name, value] : values_) names.push_back(name);
      return tell(answer().texts(names));
    }
  }
  tell(answer(StoreAnswer::refused).text("an unknown request"));
}

bool StoreTable::is_waiting(int connection) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const Waiting& each) { return each.connection == connection; });
}

bool StoreTable::try_answer(const Waiting& waiting) {
  std::vector<std::string_view> values;
  std::size_t size = 2 * sizeof(std::int64_t);
  for (const std::string& key : waiting.keys) {
    const auto found = values_.find(key);
    if (found == values_.end()) return false;
    values.push_back(found->second);
    size += found->second.size() + sizeof(std::int64_t);
  }
  // A key may be asked for many times in one message.
  if (waiting.wants_values && size > kLongestMessage) {
    reply_(waiting.connection,
           answer(StoreAnswer::refused).text("values that are too long for one answer").bytes());
    return true;
  }
  Packer packer = answer();
  if (waiting.wants_values) packer.number(static_cast<std::int64_t>(values.size()));
  for (const std::string_view value : values) {
    if (waiting.wants_values) packer.text(value);
  }
  reply_(waiting.connection, packer.bytes());
  return true;
}

void StoreTable::changed() {
  waiting_.remove_if([&](const Waiting& waiting) { return try_answer(waiting); });
}

void StoreTable::forget(int connection) {
  waiting_.remove_if([&](const Waiting& waiting) { return waiting.connection == connection; });
}

void StoreTable::tick(Clock::time_point now) {
  waiting_.remove_if([&](const Waiting& waiting) {
    if (waiting.deadline > now) return false;
    std::vector<std::string> missing;
    for (const std::string& key : waiting.keys) {
      if (values_.count(key) == 0) missing.push_back(key);
    }
    reply_(waiting.connection, answer(StoreAnswer::missing).texts(missing).bytes());
    return true;
  });
}

std::optional<Clock::time_point> StoreTable::next_deadline() const {
  std::optional<Clock::time_point> next;
  for (const Waiting& waiting : waiting_) {
    if (!next || waiting.deadline < *next) next = waiting.deadline;
  }
  return next;
}

void StoreTable::clear() {
  values_.clear();
  waiting_.clear();
}

}  // namespace hasten::rendezvous
