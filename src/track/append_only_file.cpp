#include "track/append_only_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>

#include "base/crc32.h"
#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr const char *kBytes = "bytes", *kChecksum = "crc32c";
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

// Returns the position after this many bytes of the file. Empty if they cannot be read.
TrackerPosition position_after(int file, std::int64_t bytes) {
  const auto last = read_range(file, std::max<std::int64_t>(0, bytes - kCheckedBytes), bytes);
  if (!last) return {};
  return {{kBytes, static_cast<double>(bytes)}, {kChecksum, static_cast<double>(crc32c(*last))}};
}

std::int64_t size_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? status.st_size : -1;
}

}  // namespace

AppendOnlyFile::AppendOnlyFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) make_directories(path_.parent_path());
  file_ = Descriptor(open_file(path_, O_WRONLY | O_CREAT | O_APPEND, 0666));
  if (file_.get() < 0) {
    throw IoError("io.open", {.what = "cannot open " + path_.string(),
                              .got = std::generic_category().message(errno),
                              .hint = "choose another logging_dir"});
  }
  was_empty_ = size_of(file_.get()) <= 0;
}

void AppendOnlyFile::append(std::string_view bytes) {
  if (file_.get() < 0 || write_all(file_.get(), bytes)) return;
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
  if (moves_rest_after(position)) return true;
  if (!was_empty_) {
    log_line(str("hasten: ", path_.string(),
                 " is not the file that the checkpoint describes. The run appends to it, so it may "
                 "have values of the same steps twice"));
  }
  return false;
}

bool AppendOnlyFile::moves_rest_after(const TrackerPosition& position) const {
  const auto found = position.find(kBytes);
  const Descriptor in(open_file(path_, O_RDONLY));
  if (found == position.end() || in.get() < 0) return false;
  const std::int64_t size = size_of(in.get());
  // Without a byte before the position, nothing shows that this is the same file.
  if (!(found->second >= 1 && found->second <= static_cast<double>(size))) return false;
  const auto bytes = static_cast<std::int64_t>(found->second);
  if (position_after(in.get(), bytes) != position) return false;
  if (bytes == size) return true;
  const auto rest = read_range(in.get(), bytes, size);
  const std::filesystem::path abandoned =
      path_.parent_path() / ("abandoned-" + path_.filename().string());
  const Descriptor out(open_file(abandoned, O_WRONLY | O_CREAT | O_APPEND, 0666));
  if (!rest || out.get() < 0 || !write_all(out.get(), *rest)) return false;
  return ::ftruncate(file_.get(), bytes) == 0;
}

double seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace hasten
