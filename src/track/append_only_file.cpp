#include "track/append_only_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>

#include "base/append_whole.h"
#include "base/crc32.h"
#include "base/file_calls.h"
#include "base/json_line.h"
#include "base/json_number.h"
#include "base/seconds.h"
#include "base/strict_json.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

using IndexJson = nlohmann::json;

constexpr const char *kBytes = "bytes", *kChecksum = "crc32c";
constexpr const char *kPartBegin = "begin", *kPartEnd = "end";
// The checksum of a position covers at most this many bytes before it.
constexpr std::int64_t kCheckedBytes = 4096;

// Returns the bytes [begin, end) of the file, or nullopt if they cannot be read.
std::optional<std::string> read_range(int file, std::int64_t begin, std::int64_t end) {
  std::string bytes(static_cast<std::size_t>(end - begin), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::pread(file, bytes.data() + filled, bytes.size() - filled,
                                static_cast<off_t>(begin) + static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

// Returns the position after this many bytes of the file and, if there are any, the bytes `added`
// after them. Empty if the file cannot be read.
TrackerPosition position_after(int file, std::int64_t bytes, std::string_view added = {}) {
  const std::int64_t checked = std::max<std::int64_t>(0, kCheckedBytes - std::ssize(added));
  auto last = read_range(file, std::max<std::int64_t>(0, bytes - checked), bytes);
  if (!last) return {};
  *last += added.substr(added.size() - std::min<std::size_t>(added.size(), kCheckedBytes));
  return {{kBytes, static_cast<double>(bytes + std::ssize(added))},
          {kChecksum, static_cast<double>(crc32c(*last))}};
}

// Returns the number of bytes before a position, or NaN if it has none.
double bytes_before(const TrackerPosition& position) {
  const auto found = position.find(kBytes);
  return found == position.end() ? std::nan("") : found->second;
}

std::int64_t size_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? status.st_size : -1;
}

int open_to_append(const std::filesystem::path& path) {
  return open_file(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
}

}  // namespace

// A part of the abandoned file: the bytes from `begin` to `end`, which followed `position` in the
// tracker's file.
struct AppendOnlyFile::AbandonedPart {
  TrackerPosition position;
  std::int64_t begin = 0, end = 0;
};

AppendOnlyFile::AppendOnlyFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) make_directories(path_.parent_path());
  file_ = Descriptor(open_to_append(path_));
  if (file_.get() < 0) {
    throw IoError("io.open", {.what = "cannot open " + path_.string(),
                              .got = std::generic_category().message(errno),
                              .hint = "choose another logging_dir"});
  }
  was_empty_ = size_of(file_.get()) <= 0;
}

void AppendOnlyFile::append(std::string_view bytes) {
  if (file_.get() < 0 || append_whole(file_.get(), bytes, path_)) return;
  log_line(str("hasten: cannot write ", path_.string(), ": ",
               std::generic_category().message(errno),
               ". The run continues, and this file gets nothing more"));
  file_.close();
}

TrackerPosition AppendOnlyFile::position() const {
  const Descriptor in(open_file(path_, O_RDONLY));
  const std::int64_t bytes = in.get() < 0 ? -1 : size_of(in.get());
  return bytes < 0 ? TrackerPosition{} : position_after(in.get(), bytes);
}

bool AppendOnlyFile::go_back_to(const TrackerPosition& position) {
  if (restores(position)) return true;
  if (!was_empty_) {
    log_line(str("hasten: ", path_.string(),
                 " is not the file that the checkpoint describes. The run appends to it, so it may "
                 "have values of the same steps twice"));
  }
  return false;
}

bool AppendOnlyFile::restores(const TrackerPosition& position) const {
  const std::optional<Content> content = content_before(position, abandoned_parts());
  return content && abandon_after(content->kept) && append_whole(file_.get(), content->rest, path_);
}

bool AppendOnlyFile::has_position(const TrackerPosition& position) const {
  const double bytes = bytes_before(position);
  const Descriptor in(open_file(path_, O_RDONLY));
  if (in.get() < 0) return false;
  // Without a byte before the position, nothing shows that this is the same file.
  if (!(bytes >= 1 && bytes <= static_cast<double>(size_of(in.get())))) return false;
  return position_after(in.get(), static_cast<std::int64_t>(bytes)) == position;
}

// A part may follow bytes that were abandoned themselves, in a run that resumed from a still
// earlier checkpoint. Those are in another part, whose position has fewer bytes, so that the
// recursion ends.
std::optional<AppendOnlyFile::Content> AppendOnlyFile::content_before(
    const TrackerPosition& position, const std::vector<AbandonedPart>& abandoned) const {
  if (has_position(position)) return Content{.kept = position, .rest = ""};
  const Descriptor in(open_file(path_, O_RDONLY)), out(open_file(abandoned_file(), O_RDONLY));
  if (in.get() < 0 || out.get() < 0) return std::nullopt;
  // The newest part first: of several with the position, it is the one that was logged last.
  for (auto part = abandoned.rbegin(); part != abandoned.rend(); ++part) {
    const double bytes = bytes_before(position) - bytes_before(part->position);
    if (!(bytes >= 1 && bytes <= static_cast<double>(part->end - part->begin)) ||
        part->end > size_of(out.get()))
      continue;
    const auto added =
        read_range(out.get(), part->begin, part->begin + static_cast<std::int64_t>(bytes));
    std::optional<Content> content = content_before(part->position, abandoned);
    if (!added || !content) continue;
    content->rest += *added;
    const auto kept = static_cast<std::int64_t>(bytes_before(content->kept));
    if (position_after(in.get(), kept, content->rest) == position) return content;
  }
  return std::nullopt;
}

std::vector<AppendOnlyFile::AbandonedPart> AppendOnlyFile::abandoned_parts() const {
  std::vector<AbandonedPart> parts;
  const Descriptor in(open_file(abandoned_index(), O_RDONLY));
  const std::int64_t size = in.get() < 0 ? 0 : std::max<std::int64_t>(0, size_of(in.get()));
  for (const std::string& line : split(read_range(in.get(), 0, size).value_or(""), '\n')) {
    try {
      const auto json = parse_strict_json<IndexJson>(line);
      const std::int64_t begin = whole_number_at(json, kPartBegin),
                         end = whole_number_at(json, kPartEnd);
      if (begin < 0 || end < begin) continue;
      parts.push_back({.position = {{kBytes, json.at(kBytes).get<double>()},
                                    {kChecksum, json.at(kChecksum).get<double>()}},
                       .begin = begin,
                       .end = end});
    } catch (const JsonError&) {  // the end of the file, or a line that a person has changed
    } catch (const IndexJson::exception&) {
    }
  }
  return parts;
}

bool AppendOnlyFile::abandon_after(const TrackerPosition& position) const {
  const auto bytes = static_cast<std::int64_t>(bytes_before(position));
  const Descriptor in(open_file(path_, O_RDONLY));
  const std::int64_t size = in.get() < 0 ? -1 : size_of(in.get());
  if (size <= bytes) return size == bytes;
  const auto rest = read_range(in.get(), bytes, size);
  const Descriptor out(open_to_append(abandoned_file())), list(open_to_append(abandoned_index()));
  const std::int64_t begin = out.get() < 0 ? -1 : size_of(out.get());
  if (!rest || begin < 0 || list.get() < 0) return false;
  const IndexJson part = {{kBytes, bytes},
                          {kChecksum, static_cast<std::int64_t>(position.at(kChecksum))},
                          {kPartBegin, begin},
                          {kPartEnd, begin + std::ssize(*rest)}};
  return append_whole(out.get(), *rest, abandoned_file()) &&
         append_whole(list.get(), json_line(part) + "\n", abandoned_index()) &&
         ::ftruncate(file_.get(), bytes) == 0;
}

std::filesystem::path AppendOnlyFile::abandoned_file() const {
  return path_.parent_path() / ("abandoned-" + path_.filename().string());
}

std::filesystem::path AppendOnlyFile::abandoned_index() const {
  return abandoned_file().string() + ".index";
}

double seconds_since_epoch() {
  return seconds_of(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace hasten
