#include "hasten/process/once.h"

#include <exception>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/carried_error.h"

namespace hasten {
namespace {

constexpr int kOtherError = 1;  // a command's exit code for errors that are not hasten's

[[noreturn]] void throw_letter(const std::string& letter, std::size_t rank) {
  const CarriedError carried = carried_error(letter);
  if (carried.error) std::rethrow_exception(carried.error);
  throw Error("process.failed-elsewhere",
              {.what = str("the work that rank ", rank, " does for all ranks"),
               .got = "an exception: " + carried.words},
              kOtherError);
}

}  // namespace

void once(const Group& group, bool here, const std::function<void()>& work) {
  if (group.size() == 1) {
    if (here) work();
    return;
  }
  std::exception_ptr thrown;
  try {
    if (here) work();
  } catch (...) {
    thrown = std::current_exception();
  }
  const auto letters = group.gather_object(thrown ? letter_of(thrown) : "");
  if (thrown) std::rethrow_exception(thrown);
  for (std::size_t rank = 0; rank < letters.size(); ++rank) {
    if (!letters[rank].empty()) throw_letter(letters[rank], rank);
  }
}

std::string main_says(const Group& group, const std::function<std::string()>& answer) {
  std::string said;
  once(group, group.rank() == 0, [&] { said = answer(); });
  return group.broadcast_object(said);
}

}  // namespace hasten
