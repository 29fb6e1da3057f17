#include "checkpoint/group_save.h"

#include <memory>
#include <utility>

#include "formats/deferred_writes.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"
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
  once(group_, true, [&] {
    const DeferredWrites::Scope scope(*writes);
    copy();
  });
  if (!own_group_) own_group_ = group_.duplicate();
  background_.start([group = *own_group_, writes, commits, publish = std::move(publish),
                     rotate = std::move(rotate)] {
    once(group, true, [&] { writes->run(); });
    once(group, commits, publish);
    once(group, commits, rotate);
  });
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
