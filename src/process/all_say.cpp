#include "process/all_say.h"

#include "hasten/base/text.h"

namespace hasten {

bool all_say(c10d::Store& store, const std::string& question, std::int64_t rank, std::int64_t size,
             bool own) {
  const auto key = [&](std::int64_t of) { return str(question, "/", of); };
  store.set(key(rank), std::string(own ? "yes" : "no"));
  bool all = true;
  for (std::int64_t each = 0; each < size; ++each) all = store.get(key(each)).front() == 'y' && all;
  return all;
}

}  // namespace hasten
