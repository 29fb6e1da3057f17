#include "launch/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>

#include "base/file_calls.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

std::string job_separator() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32] = "";
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return str("--- hasten launch: another job begins, ", text, " UTC ---\n");
}

int open_log_file(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw_file_error("io.write", "log_dir: cannot create the folder", folder, error.value());
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0)
    throw IoError("io.write",
                  {.what = "log_dir: cannot open " + path.string(), .got = std::strerror(errno)});
  return file;
}

}  // namespace

LogFile::LogFile(std::filesystem::path path, int event)
    : path_(std::move(path)), file_(open_log_file(path_)), writer_(file_.get(), event) {
  struct stat found {};
  if (fstat(file_.get(), &found) == 0 && found.st_size > 0) writer_.write(job_separator());
}

}  // namespace hasten
