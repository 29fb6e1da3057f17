#include "base/unfinished_files.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_calls.h"
#include "base/process_state.h"
#include "hasten/base/files.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

namespace fs = std::filesystem;

bool all_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// The process that writes an unfinished file or folder, as encoded in the name.
struct Writer {
  std::string pid, start, host;  // Names of an earlier version have only a PID.
};

std::string link_of(const char* path) {
  std::error_code error;
  return fs::read_symlink(path, error).string();
}

// Identifies the scope in which a PID means one process: the boot of the machine and the PID
// namespace (a container has its own). Returns an empty text if it cannot be determined.
std::string pid_scope() {
  const std::string boot = boot_id(), numbers = link_of("/proc/self/ns/pid");
  const bool known = !boot.empty() && !numbers.empty() && link_of("/proc/self") == str(::getpid());
  return known ? boot + numbers : "";
}

// Returns the host name, for people, and a digest of the machine and the PID namespace.
std::string host_tag() {
  const std::string name = host_name();
  std::string host = name.substr(0, 24);
  for (char& c : host) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  const std::string scope = pid_scope();
  if (scope.empty()) return host + ".unknown";
  return host + '.' + short_digest(scope + name).substr(0, 8);
}

// Returns when a process of this host was started, in the kernel's clock ticks. Returns an empty
// text if there is no such process or if it is a zombie.
std::string start_of(const std::string& pid) {
  const auto status = process_status(pid);
  return status && !has_ended(status->state) ? str(status->started) : "";
}

std::optional<Writer> writer_of_tag(const std::string& tag) {
  if (all_digits(tag)) return Writer{.pid = tag, .start = "", .host = ""};
  const std::size_t first = tag.find('-');
  const std::size_t second = first == std::string::npos ? first : tag.find('-', first + 1);
  if (second == std::string::npos) return std::nullopt;
  Writer writer{.pid = tag.substr(0, first),
                .start = tag.substr(first + 1, second - first - 1),
                .host = tag.substr(second + 1)};
  if (!all_digits(writer.pid) || !all_digits(writer.start)) return std::nullopt;
  return writer;
}

// An unfinished file or folder: its final name and its writer.
struct UnfinishedPath {
  std::string target;
  Writer writer;
  bool replaced = false;  // True for the old folder, which a new one replaces.
};

std::optional<UnfinishedPath> parse_unfinished(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.empty() || name[0] != '.') return std::nullopt;
  for (const char* kind : {kPartial, kReplaced, kTemporary}) {
    const std::size_t at = name.rfind(kind);
    if (at == std::string::npos) continue;
    std::string tag = name.substr(at + std::string_view(kind).size());
    if (kind == kTemporary) {
      const std::size_t dash = tag.find('-');
      if (dash == std::string::npos || !all_digits(tag.substr(0, dash))) return std::nullopt;
      tag = tag.substr(dash + 1);
    }
    const auto writer = writer_of_tag(tag);
    if (!writer) return std::nullopt;
    return UnfinishedPath{
        .target = name.substr(1, at - 1), .writer = *writer, .replaced = kind == kReplaced};
  }
  return std::nullopt;
}

// Returns the time of the last change to a file, or to a folder and everything in it.
fs::file_time_type last_change(const fs::path& path) {
  std::error_code error;
  fs::file_time_type latest = fs::last_write_time(path, error);
  if (error) return fs::file_time_type::clock::now();
  for (auto it = fs::recursive_directory_iterator(path, error); !error && it != fs::end(it);
       it.increment(error)) {
    std::error_code gone;
    const auto time = fs::last_write_time(it->path(), gone);
    if (!gone) latest = std::max(latest, time);
  }
  return latest;
}

// Returns the process of a writer. Only a visible process is known to have ended.
TaggedProcess process_of(const Writer& writer) {
  const std::string host = host_tag();
  const bool is_visible = writer.host == host && !ends_with(host, ".unknown");
  return {.pid = writer.pid,
          .is_visible = is_visible,
          .has_ended = is_visible && start_of(writer.pid) != writer.start};
}

bool is_abandoned(const UnfinishedPath& partial, const fs::path& path) {
  const TaggedProcess process = process_of(partial.writer);
  if (process.is_visible) return process.has_ended;
  return fs::file_time_type::clock::now() - last_change(path) > std::chrono::hours(1);
}

using UnfinishedEntry = std::pair<fs::path, UnfinishedPath>;

// Returns the unfinished entries of the folder with these final names. Old folders that were moved
// aside come first, because the new folder is what shows that a replacement was interrupted.
std::vector<UnfinishedEntry> unfinished_entries(
    const fs::path& folder, const std::function<bool(const std::string& target)>& is_target) {
  std::vector<UnfinishedEntry> entries;
  std::error_code error;
  for (auto it = fs::directory_iterator(folder, error); !error && it != fs::end(it);
       it.increment(error)) {
    auto unfinished = parse_unfinished(it->path());
    if (unfinished && is_target(unfinished->target))
      entries.emplace_back(it->path(), *std::move(unfinished));
  }
  std::stable_partition(entries.begin(), entries.end(),
                        [](const UnfinishedEntry& entry) { return entry.second.replaced; });
  return entries;
}

// True if no visible process is at work and the new folder, which was to get the name, is still
// there. Without the new folder the replacement was complete, and somebody has deleted or renamed
// the result since: the old folder must not appear again.
bool was_interrupted(const UnfinishedPath& replaced, const fs::path& path) {
  const TaggedProcess process = process_of(replaced.writer);
  if (process.is_visible && !process.has_ended) return false;
  std::string staged = path.filename().string();
  staged.replace(staged.rfind(kReplaced), std::string_view(kReplaced).size(), kPartial);
  std::error_code unknown;
  return fs::exists(path.parent_path() / staged, unknown);
}

}  // namespace

std::string writer_tag() {
  const std::string pid = str(::getpid()), start = start_of(pid);
  return str(pid, '-', start.empty() ? "0" : start, '-', host_tag());
}

std::optional<TaggedProcess> process_of_tag(const std::string& tag) {
  const auto writer = writer_of_tag(tag);
  return writer ? std::optional(process_of(*writer)) : std::nullopt;
}

bool is_partial(const fs::path& path) { return parse_unfinished(path).has_value(); }

bool is_abandoned(const fs::path& path) {
  const auto partial = parse_unfinished(path);
  return partial && is_abandoned(*partial, path);
}

void restore_replaced_folders(const fs::path& folder,
                              const std::function<bool(const std::string& target)>& is_target) {
  for (const auto& [path, unfinished] : unfinished_entries(folder, is_target)) {
    if (!unfinished.replaced || !was_interrupted(unfinished, path)) continue;
    std::error_code error;  // the name is in use, or another process was faster
    fs::rename(path, folder / unfinished.target, error);
  }
}

void restore_replaced_folder(const fs::path& target) {
  const fs::path path = without_last_slash(target);
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) return;
  restore_replaced_folders(parent_folder(path),
                           [&](const std::string& name) { return name == path.filename(); });
}

void remove_abandoned(const fs::path& folder,
                      const std::function<bool(const std::string& target)>& is_target) {
  restore_replaced_folders(folder, is_target);
  for (const auto& [path, unfinished] : unfinished_entries(folder, is_target)) {
    if (!is_abandoned(unfinished, path)) continue;
    const fs::path target = folder / unfinished.target;
    std::error_code error;
    if (unfinished.replaced && !fs::exists(target, error)) {
      fs::rename(path, target, error);
    } else {
      remove_all_quietly(path);
    }
  }
}

}  // namespace hasten
