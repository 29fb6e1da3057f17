#include "hasten/track/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/seconds.h"
#include "hasten/base/text.h"

namespace hasten {

ProgressBar::ProgressBar(std::int64_t total, ProgressBarOptions options)
    : options_(std::move(options)), total_(std::max<std::int64_t>(total, 0)) {
  terminal_ = isatty(fileno(options_.out)) != 0;
  draw(false);
}

ProgressBar::~ProgressBar() { close(); }

void ProgressBar::update(std::int64_t n) {
  done_ += n;
  draw(total_ > 0 && done_ >= total_);
}

void ProgressBar::start_at(std::int64_t n) {
  done_ = initial_ = n;
  start_ = Clock::now();
}

void ProgressBar::set_postfix(std::string text) { postfix_ = std::move(text); }

void ProgressBar::show(std::string postfix) {
  set_postfix(std::move(postfix));
  if (!options_.enabled || closed_) return;
  if (terminal_) return draw(true);
  std::fprintf(options_.out, "%s\n", line(100).c_str());
  std::fflush(options_.out);
}

void ProgressBar::write(const std::string& text) {
  clear();
  std::fprintf(options_.out, "%s\n", text.c_str());
  if (options_.enabled && terminal_ && !closed_) draw(true);
}

void ProgressBar::close() {
  if (closed_ || !options_.enabled) return;
  closed_ = true;
  if (!terminal_) return;
  if (options_.leave) {
    std::fprintf(options_.out, "\r\033[K%s\n", line(1 << 20).c_str());
  } else {
    clear();
  }
  std::fflush(options_.out);
}

std::string ProgressBar::line(int columns) const {
  const double seconds = seconds_since(start_);
  const auto fresh = static_cast<double>(done_ - initial_);
  const double rate = seconds > 0 ? fresh / seconds : 0;
  const double fraction =
      total_ > 0 ? std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_)) : 1.0;
  const std::string left =
      rate > 0
          ? human_duration(static_cast<double>(std::max<std::int64_t>(0, total_ - done_)) / rate)
          : "?";
  const std::string speed = rate == 0 ? "?"
                            : rate < 1
                                ? str(fixed(1 / rate, 2), " s/", options_.unit)
                                : str(fixed(rate, rate < 10 ? 2 : 1), " ", options_.unit, "/s");
  if (total_ == 0)  // the end of a stream is not known
    return str(options_.description.empty() ? "" : options_.description + " ", done_, " ",
               options_.unit, " [", human_duration(seconds), ", ", speed,
               postfix_.empty() ? "" : ", " + postfix_, "]");
  const std::string head = str(options_.description.empty() ? "" : options_.description + " ",
                               static_cast<int>(fraction * 100), "%");
  std::string tail = str(done_, "/", total_, " [", human_duration(seconds), "<", left, ", ", speed,
                         postfix_.empty() ? "" : ", " + postfix_, "]");
  const int width = std::clamp(columns - static_cast<int>(head.size() + tail.size()) - 5, 0, 30);
  if (width < 4) return head + " " + tail;
  const auto filled = static_cast<std::size_t>(fraction * width);
  return head + " |" + std::string(filled, '#') +
         std::string(static_cast<std::size_t>(width) - filled, ' ') + "| " + tail;
}

void ProgressBar::draw(bool force) {
  if (!options_.enabled || closed_) return;
  if (!terminal_) {
    if (!options_.leave) return;  // a bar that is removed at its end does not belong in a log
    const int tenth = total_ > 0 ? static_cast<int>(done_ * 10 / total_) : 10;
    if (tenth == tenth_ || done_ == initial_) return;
    tenth_ = tenth;
    std::fprintf(options_.out, "%s\n", line(100).c_str());
    std::fflush(options_.out);
    return;
  }
  const auto now = Clock::now();
  if (!force && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  winsize size{};
  const int columns =
      ioctl(fileno(options_.out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  std::fprintf(options_.out, "\r\033[K%s", line(columns).c_str());
  std::fflush(options_.out);
  on_screen_ = true;
}

void ProgressBar::clear() {
  if (terminal_ && on_screen_ && options_.enabled) std::fprintf(options_.out, "\r\033[K");
  on_screen_ = false;
}

}  // namespace hasten
