#include "launch/rank_output.h"

#include <cerrno>
#include <cstring>

#include "hasten/base/error.h"

namespace hasten {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kLongestLine = 64 << 10;  // a program that never ends its line

}  // namespace

RankOutput::RankOutput(std::string prefix, bool shown, const std::filesystem::path& file)
    : prefix_(std::move(prefix)), shown_(shown), file_(file) {
  if (file.empty()) return;
  log_.reset(std::fopen(file.c_str(), "w"));
  if (!log_) {
    throw IoError("io.write", {.what = "log_dir: " + file.string(), .got = std::strerror(errno)});
  }
}

void RankOutput::take(std::string_view piece, int stream) {
  std::string& begun = begun_[stream];
  while (!piece.empty()) {
    const std::size_t end = piece.find('\n');
    begun += piece.substr(0, end);
    if (end == piece.npos && begun.size() < kLongestLine) return;
    line(begun, stream);
    begun.clear();
    piece.remove_prefix(end == piece.npos ? piece.size() : end + 1);
  }
}

void RankOutput::finish() {
  for (const int stream : {1, 2}) {
    if (!begun_[stream].empty()) line(begun_[stream], stream);
    begun_[stream].clear();
  }
  if (log_) std::fflush(log_.get());
}

void RankOutput::line(const std::string& text, int stream) {
  last_.push_back(text);
  if (last_.size() > kLastLines) last_.pop_front();
  if (log_) std::fprintf(log_.get(), "%s\n", text.c_str());
  if (!shown_) return;
  std::FILE* const to = stream == 1 ? stdout : stderr;
  std::fprintf(to, "%s%s\n", prefix_.c_str(), text.c_str());
  std::fflush(to);
}

}  // namespace hasten
