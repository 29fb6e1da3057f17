#include "formats/deferred_writes.h"

namespace hasten {
namespace {

thread_local DeferredWrites* writes_of_thread = nullptr;

}  // namespace

DeferredWrites::Scope::Scope(DeferredWrites& writes)
    : before_(std::exchange(writes_of_thread, &writes)) {}

DeferredWrites::Scope::~Scope() { writes_of_thread = before_; }

DeferredWrites* DeferredWrites::active() { return writes_of_thread; }

void DeferredWrites::run() {
  for (std::function<void()>& write : std::exchange(writes_, {})) {
    write();
    write = nullptr;
  }
}

}  // namespace hasten
