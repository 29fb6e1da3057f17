#include "checkpoint/collective_save.h"

#include "base/file_calls.h"
#include "checkpoint/machine_checkpoints.h"
#include "device/memory_failure.h"
#include "hasten/base/error.h"
#include "hasten/process/once.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

// Calls a part of a save, and turns its error into one that all processes can throw.
void run_part(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error&) {
    throw;
  } catch (const fs::filesystem_error& error) {
    throw io_error_of(error);
  } catch (const std::exception& error) {
    if (!is_memory_failure(error)) throw;
    throw MemoryError("checkpoint.out-of-memory",
                      {.what = "the memory ran out in the save", .got = short_message(error)});
  }
}

}  // namespace

void save_checkpoint(const Group& group, GroupSave& background, const SaveParts& parts) {
  const auto once_safely = [&](bool is_worker, const std::function<void()>& part) {
    once(group, is_worker, [&] { run_part(part); });
  };
  NewCheckpoint made;  // of a process that writes a folder
  once_safely(parts.writes, [&] { made = parts.begin(); });
  // With on_each_node, each machine has a folder, and its ranks follow the one that writes it.
  const fs::path staged = path_of_writer(group, made.save ? made.save->path().string() : "");
  if (parts.on_each_node) {
    const std::string id = new_save_id(group);
    once_safely(parts.writes, [&] { write_machine_file(staged, id); });
  }
  if (parts.call_hooks) once_safely(true, [&] { parts.call_hooks(staged); });
  if (parts.gather) parts.gather(staged);
  const auto write = [&] { run_part([&] { parts.write(staged); }); };
  const auto publish = [made] { run_part([&] { made.save->publish(made.rotation); }); };
  const auto rotate = [made] { run_part([&] { made.save->rotate(made.rotation); }); };
  if (parts.asynchronous) return background.start(write, parts.writes, publish, rotate);
  once(group, true, write);
  once(group, parts.writes, publish);
  once(group, parts.writes, rotate);
}

}  // namespace hasten
