// File: prepare/row_exchange.h (internal)
// Sums the gradient of a table over the processes. It sends only the rows that a pass has used.
//
//   RowExchange rows(table, group, wire_type);
//   rows.begin_pass();  loss.backward();  rows.sum(factor);
//
// The rows of all processes are added in rank order, so that all processes get the same result to
// the last bit. A process may have few rows, many rows, none, or a dense gradient, so the counts
// are exchanged first. If a gradient is dense, or if the largest count times the number of
// processes is more than half of the table, the whole table is summed and the gradient becomes
// dense, because merging so many rows costs more than it saves.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

class RowExchange {
 public:
  // Rows are sent as `type`, if it is set, and added in the table's type; a whole table is
  // also added in `type`.
  RowExchange(at::Tensor table, Group group, std::optional<at::ScalarType> type);
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;
  ~RowExchange();

  // Begins a pass.
  void begin_pass() { got_gradient_ = false; }
  // True if the pass gave the table a gradient, even one without rows.
  bool got_gradient() const { return got_gradient_; }
  const at::Tensor& table() const { return table_; }

  // Replaces the gradient with the sum over the processes of their gradients times their `factor`,
  // or clears it if no process has rows. Call it after the pass. A collective.
  void sum(double factor);

 private:
  std::vector<std::int64_t> counts_of(const at::Tensor& gradient) const;
  at::Tensor summed_rows(const at::Tensor& gradient, const std::vector<std::int64_t>& counts,
                         double factor) const;
  at::Tensor summed_table(const at::Tensor& gradient, double factor) const;

  at::Tensor table_;
  Group group_;
  std::optional<at::ScalarType> type_;
  // Holds the hook. It is a shared_ptr in LibTorch 2.11 and an intrusive_ptr in 2.15.
  decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator_;
  std::uintptr_t hook_ = 0;
  bool got_gradient_ = false;
};

}  // namespace hasten
