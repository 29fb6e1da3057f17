#include "process/watch/call_log.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "hasten/base/text.h"
#include "process/consensus/comparison.h"

namespace hasten {
namespace {

// Collects the numbers that must be the same on all ranks, without allocating memory.
class Digest {
 public:
  void add(std::uint64_t number) {
    if (count_ == numbers_.size()) {
      numbers_[0] = value();
      count_ = 1;
    }
    numbers_[count_++] = number;
  }
  void add(std::string_view text) {
    add(static_cast<std::uint64_t>(fingerprint(text.data(), text.size())));
  }
  std::uint64_t value() const {
    return static_cast<std::uint64_t>(fingerprint(numbers_.data(), count_ * sizeof(std::uint64_t)));
  }

 private:
  std::array<std::uint64_t, 32> numbers_{};
  std::size_t count_ = 0;
};

template <class Part>
std::uint64_t extended(std::uint64_t before, const Part& part) {
  Digest digest;
  digest.add(before);
  digest.add(part);
  return digest.value();
}

// The log keeps this many calls, and more only while the oldest of them is in progress.
constexpr std::size_t kMaxKept = 16;

pid_t this_thread() {
  thread_local const pid_t number = gettid();
  return number;
}

}  // namespace

Call Call::of(const char* operation, at::TensorList tensors) {
  Call call{.operation = operation, .tensors = static_cast<std::int64_t>(tensors.size())};
  Digest digest;
  digest.add(std::string_view(operation));
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    call.elements += tensor.numel();
    digest.add(static_cast<std::uint64_t>(tensor.scalar_type()) + 1);
    for (const std::int64_t size : tensor.sizes()) digest.add(static_cast<std::uint64_t>(size));
  }
  if (!tensors.empty() && tensors.front().defined()) {
    const at::IntArrayRef sizes = tensors.front().sizes();
    call.type = tensors.front().scalar_type();
    call.dimensions = static_cast<std::int64_t>(sizes.size());
    std::copy_n(sizes.begin(), std::min(sizes.size(), kDimensions), call.sizes.begin());
  }
  call.fingerprint = digest.value();
  return call;
}

Call Call::rooted(const char* operation, at::TensorList tensors, std::int64_t root) {
  Call call = of(operation, tensors);
  call.root = root;
  call.fingerprint = extended(call.fingerprint, static_cast<std::uint64_t>(root));
  return call;
}

Call Call::reducing(const char* operation, at::TensorList tensors, const char* reduction) {
  Call call = of(operation, tensors);
  call.reduction = reduction;
  call.fingerprint = extended(call.fingerprint, std::string_view(reduction));
  return call;
}

std::string Call::tensors_text() const {
  const std::string type_name = lower(at::toString(type));
  if (tensors > 1) return str(" of ", tensors, " tensors, ", elements, " ", type_name, " together");
  if (dimensions == 0) return " of one " + type_name;
  const auto shown = std::min(static_cast<std::size_t>(dimensions), kDimensions);
  std::vector<std::string> lengths;
  for (std::size_t i = 0; i < shown; ++i) lengths.push_back(str(sizes[i]));
  if (static_cast<std::size_t>(dimensions) > shown) lengths.push_back("...");
  return str(" of ", join(lengths, " x "), " ", type_name);
}

std::string Call::text() const {
  std::string text = operation;
  if (*reduction != '\0') text += str(" (", reduction, ")");
  if (tensors > 0) text += tensors_text();
  if (root >= 0) text += str(", root ", root);
  return text;
}

std::string Call::text_with_purpose() const {
  if (purpose == nullptr) return text();
  return str(text(), " (", purpose, index < 0 ? std::string() : str(" ", index), ")");
}

std::string ordinal(std::int64_t number) {
  const std::int64_t tens = number % 100, ones = number % 10;
  const bool teen = tens >= 11 && tens <= 13;
  const char* const ending = teen        ? "th"
                             : ones == 1 ? "st"
                             : ones == 2 ? "nd"
                             : ones == 3 ? "rd"
                                         : "th";
  return str(number, ending);
}

std::int64_t CallLog::begin(const Call& call) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  while (entries_.size() >= kMaxKept && entries_.front().is_done) entries_.pop_front();
  entries_.push_back({.call = call, .number = ++begun_, .began = now});
  entries_.back().call.purpose = purpose_.text;
  entries_.back().call.index = purpose_.index;
  thread_ = this_thread();
  last_activity_ = now;
  return begun_;
}

void CallLog::end(std::int64_t number) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  const std::int64_t at = number - entries_.front().number;  // entries are numbered without gaps
  Entry& entry = entries_[static_cast<std::size_t>(at)];
  entry.ended = now;
  entry.is_done = true;
  last_activity_ = now;
}

CallLog::Purpose CallLog::set_purpose(Purpose purpose) {
  const std::lock_guard lock(mutex_);
  return std::exchange(purpose_, purpose);
}

void CallLog::set_step(std::int64_t done) {
  const std::lock_guard lock(mutex_);
  step_ = done;
}

std::optional<CallLog::Clock::time_point> CallLog::oldest_call_start() const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (!entry.is_done) return entry.began;
  }
  return std::nullopt;
}

CallLog::Clock::time_point CallLog::last_activity() const {
  const std::lock_guard lock(mutex_);
  return last_activity_;
}

CallLog::Snapshot CallLog::snapshot() const {
  const std::lock_guard lock(mutex_);
  return {.begun = begun_,
          .step = step_,
          .thread = thread_,
          .entries = {entries_.begin(), entries_.end()}};
}

}  // namespace hasten
