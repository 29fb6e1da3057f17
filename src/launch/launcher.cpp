#include "hasten/launch/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "launch/cores.h"
#include "launch/job.h"
#include "launch/rank_output.h"
#include "launch/rank_process.h"

namespace hasten {
namespace {

using Clock = std::chrono::steady_clock;

// Loopback alone is asked, so that nothing of the network matters. Another one at each call.
int free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool found = probe >= 0 && bind(probe, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (probe >= 0) close(probe);
  if (!found)
    throw IoError("launch.port",
                  {.what = "no free port on 127.0.0.1", .got = std::strerror(error)});
  return ntohs(address.sin_port);
}

// The signals that the launcher takes as they come, from a file instead of a handler.
class Signals {
 public:
  Signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
      sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, &before_);
    file_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  ~Signals() {
    close(file_);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  int file() const { return file_; }
  std::optional<int> next() {
    signalfd_siginfo info{};
    if (read(file_, &info, sizeof info) != sizeof info) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
  }

 private:
  int file_ = -1;
  sigset_t before_{};
};

// All ranks, from their start to their end.
class Attempt {
 public:
  Attempt(const LaunchConfiguration& run, const std::string& job, int number, Signals& signals)
      : options_(run.options), job_(job), number_(number), signals_(signals) {
    const auto commands = rank_commands(run, free_port(), number, job);
    std::vector<std::vector<int>> cores(commands.size());  // empty: all
    if (options_.enable_cpu_affinity) cores = shares_of_cores(commands.size());
    for (std::size_t rank = 0; rank < commands.size(); ++rank) {
      outputs_.emplace_back(commands.size() > 1 ? str("[", rank, "] ") : "", is_shown(rank),
                            log_of(rank));
      ranks_.emplace_back(commands[rank], cores[rank]);
    }
  }

  // The code of the first rank that failed; 0: none.
  int run() {
    while (std::any_of(ranks_.begin(), ranks_.end(),
                       [](const RankProcess& rank) { return !rank.ended(); })) {
      wait();
      if (deadline_ && Clock::now() >= *deadline_) kill_all();
    }
    drain();
    if (first_failed_) tell_failure();
    return first_failed_ ? ranks_[*first_failed_].code() : 0;
  }

  // The signal that ended it from outside; 0: none.
  int stopped_by() const { return stopped_by_; }

 private:
  bool is_shown(std::size_t rank) const {
    if (options_.local_ranks_filter.empty()) return true;
    const auto shown = split(options_.local_ranks_filter, ',');
    return std::find(shown.begin(), shown.end(), std::to_string(rank)) != shown.end();
  }

  std::filesystem::path log_of(std::size_t rank) const {
    if (options_.log_dir.empty()) return {};
    const auto folder = std::filesystem::path(options_.log_dir) / str("attempt_", number_);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    return folder / str("rank_", rank, ".log");
  }

  // Until something happens.
  void wait() {
    std::vector<pollfd> files = {{.fd = signals_.file(), .events = POLLIN, .revents = 0}};
    std::vector<std::pair<std::size_t, int>> whose = {{0, 0}};
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const auto& [file, stream] :
           {std::pair{ranks_[rank].output(), 1}, {ranks_[rank].errors(), 2}}) {
        if (file < 0) continue;
        files.push_back({.fd = file, .events = POLLIN, .revents = 0});
        whose.emplace_back(rank, stream);
      }
    }
    int milliseconds = -1;
    if (deadline_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now()).count();
      milliseconds = static_cast<int>(std::max<std::int64_t>(0, left + 1));
    }
    if (poll(files.data(), files.size(), milliseconds) < 0 && errno != EINTR) return;
    for (std::size_t i = 1; i < files.size(); ++i) {
      if (files[i].revents != 0) read_from(whose[i].first, files[i].fd, whose[i].second);
    }
    while (const auto number = signals_.next()) {
      *number == SIGCHLD ? look_for_ends() : pass_on(*number);
    }
  }

  // False once there is nothing more to come.
  bool read_from(std::size_t rank, int file, int stream) {
    char buffer[16 << 10];
    const ssize_t got = read(file, buffer, sizeof buffer);
    if (got > 0) {
      outputs_[rank].take({buffer, static_cast<std::size_t>(got)}, stream);
      return true;
    }
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    ranks_[rank].close_file(file);
    return false;
  }

  void drain() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const int stream : {1, 2}) {
        const int file = stream == 1 ? ranks_[rank].output() : ranks_[rank].errors();
        while (file >= 0 && read_from(rank, file, stream)) {
        }
      }
      outputs_[rank].finish();
    }
  }

  void look_for_ends() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].has_just_ended()) continue;
      if (ranks_[rank].code() == 0 || first_failed_) continue;
      first_failed_ = rank;
      // The others wait for it, perhaps forever.
      if (stopped_by_ == 0) stop(SIGTERM, std::min(options_.grace_period, kGraceAfterFailure));
    }
  }

  void pass_on(int number) {
    const bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP;
    if (ends && stopped_by_ != 0 && number == SIGINT) return kill_all();
    if (!ends) return send(number);
    if (stopped_by_ == 0) stopped_by_ = number;
    stop(number, options_.grace_period);
  }

  void stop(int number, double grace) {
    send(number);
    const auto limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(grace));
    if (!deadline_ || limit < *deadline_) deadline_ = limit;
  }

  void send(int number) {
    for (const RankProcess& rank : ranks_) {
      if (!rank.ended()) rank.send(number);
    }
  }

  void kill_all() {
    deadline_.reset();
    send(SIGKILL);
    kill_job(job_);
  }

  void tell_failure() const {
    const RankProcess& rank = ranks_[*first_failed_];
    const RankOutput& output = outputs_[*first_failed_];
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    std::string text =
        str("hasten launch: rank ", *first_failed_, " on ", host, " (pid ", rank.process(), ") ",
            rank.how_it_ended(), " after ", fixed(rank.seconds(), 1), " s");
    if (stopped_by_ == 0) text += ", the first to fail";
    if (!output.file().empty()) text += "; its output is in " + output.file().string();
    text += output.last_lines().empty() ? "; it said nothing\n" : "; its last lines:\n";
    for (const std::string& line : output.last_lines()) text += "  | " + line + "\n";
    std::fputs(text.c_str(), stderr);
  }

  static constexpr double kGraceAfterFailure = 1;  // seconds; those that wait for a dead rank
  const LaunchOptions& options_;
  const std::string& job_;
  int number_;
  Signals& signals_;
  std::vector<RankOutput> outputs_;
  std::vector<RankProcess> ranks_;
  std::optional<std::size_t> first_failed_;
  std::optional<Clock::time_point> deadline_;
  int stopped_by_ = 0;
};

}  // namespace

int launch(const LaunchConfiguration& run) {
  rank_commands(run, 0, 0, "");  // refused before anything is started
  const std::string job = new_job();
  const Guardian guardian(job);
  Signals signals;
  for (int number = 0;; ++number) {
    int code = 0, stopped_by = 0;
    {
      Attempt attempt(run, job, number, signals);
      code = attempt.run();
      stopped_by = attempt.stopped_by();
    }
    kill_job(job);
    if (stopped_by != 0) return 128 + stopped_by;
    if (code == 0 || number >= run.options.max_restarts) return code;
    if (!run.options.quiet) {
      std::fprintf(stderr, "hasten launch: all processes start again (%d of %lld)\n", number + 1,
                   static_cast<long long>(run.options.max_restarts));
    }
  }
}

}  // namespace hasten
