#include "checkpoint/group_save.h"

#include <memory>
#include <utility>

#include "device/memory_failure.h"
#include "formats/deferred_writes.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/process/detail/rank_agreement.h"
#include "hasten/process/once.h"

namespace hasten {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an object that is not a std::exception";
  }
}

}  // namespace

GroupSave::GroupSave(Group group, std::function<void(const std::string&)> warn)
    : group_(std::move(group)), warn_(std::move(warn)) {}

void GroupSave::start(const std::function<void()>& copy, bool commits,
                      std::function<void()> publish, std::function<void()> rotate) {
  finish();
  logged_ = nullptr;
  const auto writes = std::make_shared<DeferredWrites>();
  if (!all_have_copied(*writes, copy)) {
    report_missing_memory();
    return background_.run([&] {
      once(group_, true, copy);
      once(group_, commits, publish);
      once(group_, commits, rotate);
    });
  }
  if (!own_group_) own_group_ = group_.duplicate();
  background_.start([group = *own_group_, writes, commits, publish = std::move(publish),
                     rotate = std::move(rotate)] {
    once(group, true, [&] { writes->run(); });
    once(group, commits, publish);
    once(group, commits, rotate);
  });
}

// Returns false, and frees the copies, if a process has too little memory for its own. A
// collective.
bool GroupSave::all_have_copied(DeferredWrites& writes, const std::function<void()>& copy) {
  bool is_memory_missing = false;
  once(group_, true, [&] {
    const DeferredWrites::Scope scope(writes);
    try {
      copy();
    } catch (const std::exception& error) {
      if (!is_memory_failure(error)) throw;
      writes.clear();
      is_memory_missing = true;
    }
  });
  const bool all_have = is_true_on_all_ranks(group_, !is_memory_missing);
  if (!all_have) writes.clear();
  return all_have;
}

void GroupSave::report_missing_memory() {
  if (std::exchange(is_missing_memory_reported_, true)) return;
  warn_(
      "there is too little memory for the copy of an asynchronous checkpoint, so training waits "
      "until it is written. Later checkpoints do the same, without this warning, while there is "
      "too little memory. A synchronous save needs no copy: async_save false, or save_state() "
      "without asynchronous");
}

void GroupSave::report_if_finished() {
  if (background_.has_finished()) finish();
}

bool GroupSave::finish() {
  const std::exception_ptr error = background_.wait();
  if (!error) return true;
  warn_("a checkpoint was not saved, and the one before is still the newest: " + text_of(error));
  logged_ = error;
  return false;
}

void GroupSave::wait() {
  std::exception_ptr error = background_.wait();
  if (!error) error = std::exchange(logged_, nullptr);
  if (error) std::rethrow_exception(error);
}

}  // namespace hasten
