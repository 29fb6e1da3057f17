#include "hasten/checkpoint/checkpoint_folders.h"

#include <algorithm>
#include <string>

#include "formats/model_files.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCheckpoint = "checkpoint-";
constexpr const char* kAbandoned = "abandoned-checkpoint-";

// Returns the number after the prefix, up to `end`, or -1 for a name of another form.
std::int64_t number_after_prefix(const std::string& name, const std::string& prefix,
                                 char end = '\0') {
  if (!starts_with(name, prefix)) return -1;
  const std::string rest = name.substr(prefix.size());
  const std::string digits = end == '\0' ? rest : rest.substr(0, rest.find(end));
  const bool number =
      !digits.empty() && digits.size() < 19 &&
      std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c); });
  return number ? std::stoll(digits) : -1;
}

std::int64_t abandoned_step(const fs::path& folder) {
  return number_after_prefix(folder.filename().string(), kAbandoned, '.');
}

template <class StepOf>
std::vector<fs::path> folders_by_step(const fs::path& output_dir, StepOf step_of_folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (auto it = fs::directory_iterator(output_dir, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code gone;
    if (it->is_directory(gone) && step_of_folder(it->path()) >= 0) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end(), [&](const fs::path& a, const fs::path& b) {
    return std::pair(step_of_folder(a), a) < std::pair(step_of_folder(b), b);
  });
  return found;
}

fs::path free_abandoned_name(const fs::path& output_dir, std::int64_t step) {
  fs::path name = output_dir / str(kAbandoned, step);
  for (int n = 2; fs::exists(name); ++n) name = output_dir / str(kAbandoned, step, '.', n);
  return name;
}

}  // namespace

std::int64_t step_of_checkpoint(const fs::path& folder) {
  return number_after_prefix(folder.filename().string(), kCheckpoint);
}

std::vector<fs::path> checkpoints(const fs::path& output_dir) {
  return folders_by_step(output_dir, step_of_checkpoint);
}

std::vector<fs::path> abandoned_checkpoints(const fs::path& output_dir) {
  return folders_by_step(output_dir, abandoned_step);
}

fs::path last_checkpoint(const fs::path& output_dir) {
  auto found = checkpoints(output_dir);
  while (!found.empty()) {
    if (fs::exists(found.back() / "trainer_state.json")) return found.back();
    found.pop_back();
  }
  return {};
}

void abandon_checkpoints_after(const fs::path& output_dir, std::int64_t step) {
  const auto found = checkpoints(output_dir);
  for (auto it = found.rbegin(); it != found.rend() && step_of_checkpoint(*it) > step; ++it) {
    std::error_code error;
    fs::rename(*it, free_abandoned_name(output_dir, step_of_checkpoint(*it)), error);
    // The main process of another machine may have renamed it already.
    if (error && error != std::errc::no_such_file_or_directory) {
      throw IoError(
          "io.rename",
          {.what = "cannot rename " + it->string(),
           .got = error.message(),
           .hint = "move it away: it is a checkpoint of a later step than the one that this run "
                   "resumes from"});
    }
  }
}

void rotate_checkpoints(const fs::path& output_dir, std::int64_t limit, const fs::path& keep) {
  std::vector<fs::path> oldest_first = abandoned_checkpoints(output_dir);
  const auto current = checkpoints(output_dir);
  const fs::path newest = current.empty() ? fs::path() : current.back();
  oldest_first.insert(oldest_first.end(), current.begin(), current.end());
  std::int64_t excess = static_cast<std::int64_t>(oldest_first.size()) - limit;
  for (const fs::path& folder : oldest_first) {
    if (excess <= 0) return;
    std::error_code error;
    if (folder == newest || folder == keep || fs::equivalent(folder, keep, error)) continue;
    fs::remove_all(folder, error);  // a folder that cannot be deleted does not end the run
    --excess;
  }
}

void remove_unfinished_saves(const fs::path& output_dir) {
  remove_abandoned(output_dir, [](const std::string& target) {
    return step_of_checkpoint(target) >= 0 || target == kStagedModel;
  });
}

}  // namespace hasten
