// File: attach/report_writer.h (internal)
// Writes the report that `hasten anatomy` or `hasten estimate -- PROGRAM` has requested, once: when
// the requested steps are done, or when the program ends before that. Each kind of report derives
// from it.
//
//   observers->add(writer);                              // ends the process after the steps
//   std::atexit([] { writer->write(); });
//
// Thread rule: the training thread.
#pragma once

#include <cstdint>
#include <string>

#include "hasten/prepare/detail/step_observer.h"

namespace hasten::anatomy {

class ReportWriter : public StepObserver {
 public:
  explicit ReportWriter(const char* what);

  void on_step() override;
  void write();
  // Returns true if the report also explains why a program ended with an exception.
  virtual bool explains_exceptions() const { return false; }

 protected:
  // Returns the number of steps that are requested.
  static std::int64_t steps();
  virtual bool finished() const = 0;
  // Collects the findings up to now. The functions below show them.
  virtual void collect() = 0;
  virtual std::string text() const = 0;
  virtual std::string json() const = 0;
  virtual void write_file(const std::string& file) const = 0;

 private:
  const char* what_;
  std::string output_;
  bool written_ = false;
};

}  // namespace hasten::anatomy
