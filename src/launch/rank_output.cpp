#include "launch/rank_output.h"

#include <cerrno>
#include <cstring>

#include "hasten/base/error.h"

namespace hasten {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kLongestLine = 64 << 10;  // a program that never ends its line

std::shared_ptr<std::FILE> opened(const std::filesystem::path& file) {
  std::error_code ignored;  // told by what follows
  std::filesystem::create_directories(file.parent_path(), ignored);
  std::FILE* const log = std::fopen(file.c_str(), "w");
  if (log == nullptr)
    throw IoError("io.write", {.what = "log_dir: " + file.string(), .got = std::strerror(errno)});
  return {log, [](std::FILE* each) { std::fclose(each); }};
}

}  // namespace

RankOutput::RankOutput(OutputPlan plan) : plan_(std::move(plan)) {
  for (const int stream : {0, 1}) {
    const bool both = stream == 1 && plan_.file[1] == plan_.file[0];
    if (!plan_.file[stream].empty()) log_[stream] = both ? log_[0] : opened(plan_.file[stream]);
  }
}

std::filesystem::path RankOutput::kept_in() const {
  const auto &output = plan_.file[0], &errors = plan_.file[1];
  if (output == errors || errors.empty()) return output;
  return output.empty() ? errors : output.parent_path();
}

void RankOutput::take(std::string_view piece, int stream) {
  std::string& begun = begun_[stream - 1];
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
    std::string& begun = begun_[stream - 1];
    if (!begun.empty()) line(begun, stream);
    begun.clear();
    if (log_[stream - 1]) std::fflush(log_[stream - 1].get());
  }
}

void RankOutput::line(const std::string& text, int stream) {
  last_.push_back(text);
  if (last_.size() > kLastLines) last_.pop_front();
  if (log_[stream - 1]) std::fprintf(log_[stream - 1].get(), "%s\n", text.c_str());
  if (!plan_.shown[stream - 1]) return;
  std::FILE* const to = stream == 1 ? stdout : stderr;
  std::fprintf(to, "%s%s\n", plan_.prefix.c_str(), text.c_str());
  std::fflush(to);
}

}  // namespace hasten
