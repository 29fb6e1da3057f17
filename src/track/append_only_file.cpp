#include "track/append_only_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <chrono>
#include <system_error>

#include "hasten/base/error.h"
#include "hasten/base/files.h"
#include "hasten/base/log.h"
#include "hasten/base/text.h"

namespace hasten {

AppendOnlyFile::AppendOnlyFile(std::filesystem::path path) : path_(std::move(path)) {
  if (path_.has_parent_path()) make_directories(path_.parent_path());
  file_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (file_.get() < 0) {
    throw IoError("io.open", {.what = str("cannot open ", path_.string(), ": ",
                                          std::generic_category().message(errno)),
                              .hint = "choose another logging_dir"});
  }
  struct stat status {};
  was_empty_ = ::fstat(file_.get(), &status) != 0 || status.st_size == 0;
}

void AppendOnlyFile::append(std::string_view bytes) {
  if (file_.get() < 0 || write_all(file_.get(), bytes)) return;
  log_line(str("hasten: cannot write ", path_.string(), ": ",
               std::generic_category().message(errno),
               ". The run continues, and this file gets nothing more"));
  file_.close();
}

double seconds_since_epoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace hasten
