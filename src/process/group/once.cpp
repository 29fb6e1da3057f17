#include "hasten/process/once.h"

#include <exception>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/group/serialized_exception.h"

namespace hasten {
namespace {

constexpr int kOtherError = 1;  // a command's exit code for errors that are not hasten's

[[noreturn]] void throw_remote(const std::string& serialized, std::size_t rank) {
  const RemoteException remote = deserialize_exception(serialized);
  if (remote.error) std::rethrow_exception(remote.error);
  throw Error("process.failed-elsewhere",
              {.what = str("the work that rank ", rank, " does for all ranks"),
               .got = "an exception: " + remote.message},
              kOtherError);
}

}  // namespace

void once(const Group& group, bool is_worker, const std::function<void()>& work) {
  if (group.size() == 1) {
    if (is_worker) work();
    return;
  }
  std::exception_ptr thrown;
  try {
    if (is_worker) work();
  } catch (...) {
    thrown = std::current_exception();
  }
  std::vector<std::string> serialized_of_ranks;
  try {
    serialized_of_ranks = group.gather_object(thrown ? serialize_exception(thrown) : "");
  } catch (...) {
    if (!thrown) throw;  // the error of this process's own work is more informative
  }
  if (thrown) std::rethrow_exception(thrown);
  for (std::size_t rank = 0; rank < serialized_of_ranks.size(); ++rank) {
    if (!serialized_of_ranks[rank].empty()) throw_remote(serialized_of_ranks[rank], rank);
  }
}

std::string broadcast_from_main(const Group& group, const std::function<std::string()>& compute) {
  std::string value;
  once(group, group.rank() == 0, [&] { value = compute(); });
  return group.broadcast_object(value);
}

}  // namespace hasten
