// A libFuzzer target for the files that `hasten plot` reads: event files of TensorBoard,
// metrics.jsonl, metrics.csv and trainer_state.json. The first byte selects the kind. For half of
// the event files the target computes the checksums of a record, so that the fuzzer need not guess
// them.
#include <cstdint>
#include <string>

#include "hasten/base/error.h"
#include "parsed_file.h"
#include "track/event_record.h"
#include "track/logged_runs.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace hasten;
  if (size == 0) return 0;
  static const fuzz::MemoryFolder folder;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::filesystem::path file;
  switch (data[0] % 5) {
    case 0:
      file = folder.write("events.out.tfevents.1", text);
      break;
    case 1:
      file = folder.write("events.out.tfevents.1", event_record(text));
      break;
    case 2:
      file = folder.write("metrics.jsonl", text);
      break;
    case 3:
      file = folder.write("metrics.csv", text);
      break;
    default:
      file = folder.write("trainer_state.json", text);
  }
  const fuzz::MemoryLimit limit(size);
  try {
    for (const LoggedRun& run : read_logged_runs({file})) {
      if (run.curves.empty()) std::abort();
    }
  } catch (const DataError&) {
  }
  return 0;
}
