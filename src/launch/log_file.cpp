#include "launch/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>

#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::string beginning() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return str("--- hasten launch: another job begins, ", text, " UTC ---\n");
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& file) {
  std::error_code ignored;  // opening the file reports it
  std::filesystem::create_directories(file.parent_path(), ignored);
  file_ = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file_ < 0)
    throw IoError("io.write", {.what = "log_dir: " + file.string(), .got = std::strerror(errno)});
  struct stat found {};
  if (fstat(file_, &found) == 0 && found.st_size > 0) write(beginning());
}

LogFile::~LogFile() { close(file_); }

int LogFile::write(std::string_view lines) {
  while (!lines.empty()) {
    const ssize_t written = ::write(file_, lines.data(), lines.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    lines.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace hasten
