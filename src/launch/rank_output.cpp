#include "launch/rank_output.h"

#include <utility>

#include "base/utf8.h"

namespace hasten {
namespace {

constexpr std::size_t kLastLines = 20;
constexpr std::size_t kMaxLastLineBytes = 1 << 10;  // bytes; the report goes to every machine
constexpr std::size_t kMaxLineBytes = 64 << 10;     // bytes; a program may never end its line

}  // namespace

RankOutput::RankOutput(OutputPlan plan, Console& console)
    : plan_(std::move(plan)), console_(console) {
  for (const int stream : {0, 1}) {
    const auto& file = plan_.file[stream];
    if (file.empty()) continue;
    const bool both = stream == 1 && file == plan_.file[0];
    log_[stream] = both ? log_[0] : console.open_log(file, plan_.log_error_policy);
  }
  for (const int stream : {0, 1}) {
    if (!log_[stream]) plan_.file[stream].clear();  // it could not be opened
  }
}

std::filesystem::path RankOutput::saved_path() const {
  const auto &output = plan_.file[0], &errors = plan_.file[1];
  if (output == errors || errors.empty()) return output;
  return output.empty() ? errors : output.parent_path();
}

bool RankOutput::must_wait(int stream) const {
  const auto& log = log_[stream - 1];
  return (plan_.shown[stream - 1] && console_.is_full(stream)) || (log && log->writer().is_full());
}

void RankOutput::append(std::string_view chunk, int stream) {
  std::string& partial_line = partial_line_[stream - 1];
  while (!chunk.empty()) {
    const std::size_t end = chunk.find('\n');
    partial_line += chunk.substr(0, end);
    if (end == chunk.npos && partial_line.size() < kMaxLineBytes) break;
    add_line(partial_line, stream);
    chunk.remove_prefix(end == chunk.npos ? chunk.size() : end + 1);
  }
  write_lines(stream);
}

void RankOutput::finish() {
  for (const int stream : {1, 2}) {
    if (!partial_line_[stream - 1].empty()) add_line(partial_line_[stream - 1], stream);
    write_lines(stream);
  }
}

// Leaves `text` empty.
void RankOutput::add_line(std::string& text, int stream) {
  if (plan_.shown[stream - 1]) ((console_text_ += plan_.prefix) += text) += '\n';
  if (log_[stream - 1]) (log_text_ += text) += '\n';
  if (text.size() > kMaxLastLineBytes) {
    text.resize(utf8_prefix(text, kMaxLastLineBytes).size());
    text += " ...";
  }
  last_.push_back(std::move(text));
  if (last_.size() > kLastLines) last_.pop_front();
  text.clear();
}

void RankOutput::write_lines(int stream) {
  if (!console_text_.empty()) console_.print_output(console_text_, stream);
  if (!log_text_.empty()) log_[stream - 1]->writer().write(log_text_);
  console_text_.clear();
  log_text_.clear();
}

}  // namespace hasten
