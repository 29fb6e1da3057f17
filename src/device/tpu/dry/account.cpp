#include "device/tpu/dry/account.h"

namespace hasten::dry_tpu {

Account::Account() { visits_.emplace_back().phase = "setup"; }

void Account::add(std::int64_t bytes) {
  now_.tensors += bytes;
  look(now_);
}

void Account::remove(std::int64_t bytes) {
  now_.tensors -= bytes;
  visits_.back().tensors_after = now_.tensors;
}

void Account::load(std::int64_t code) {
  now_.code += code;
  look(now_);
}

void Account::unload(std::int64_t code) { now_.code -= code; }

void Account::run(const std::string& program, const Run& run) {
  now_.tensors += run.results;
  Moment during = now_;
  during.temporaries = run.temporaries;
  during.program = program;
  look(during);
  remove(run.taken_over);
}

void Account::enter(const std::string& phase) {
  visits_.push_back({.phase = phase,
                     .tensors_before = now_.tensors,
                     .tensors_after = now_.tensors,
                     .peak = now_});
}

void Account::look(const Moment& moment) {
  visits_.back().tensors_after = now_.tensors;
  if (moment.total() > peak_.total()) peak_ = moment;
  if (moment.total() > visits_.back().peak.total()) visits_.back().peak = moment;
}

}  // namespace hasten::dry_tpu
