// File: prepare/row_exchange.h (internal)
// The gradient of a table of which a pass touches few rows: only those travel.
//
//   RowExchange rows(table, group, wire_type);
//   rows.expect();  loss.backward();  rows.sum(factor);
//
// The rows are those of all processes, added up in the order of the ranks, so that all have the
// same to the last bit. A process has few rows, many, none, or a dense gradient: each tells the
// others the number first. Where the rows of all together, each with as many as the one that has
// most, would be more than half of the table, or one gradient is dense, the whole table is summed,
// and the gradient is dense: what it costs to put rows together grows faster than what they save.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "hasten/process/group.h"

namespace hasten {

class RowExchange {
 public:
  // Rows travel in `type`, where there is one, and are added up in the table's.
  RowExchange(at::Tensor table, Group group, std::optional<at::ScalarType> type);
  RowExchange(const RowExchange&) = delete;
  RowExchange& operator=(const RowExchange&) = delete;
  ~RowExchange();

  // A pass begins.
  void expect() { reached_ = false; }
  // Whether it gave the table a gradient, if only one of no rows.
  bool reached() const { return reached_; }
  const at::Tensor& table() const { return table_; }

  // The gradient becomes the sum over the processes, times `factor`. After the pass; a collective.
  void sum(double factor);

 private:
  std::vector<std::int64_t> counts_of(const at::Tensor& gradient) const;
  at::Tensor summed_rows(const at::Tensor& gradient, const std::vector<std::int64_t>& counts,
                         double factor) const;
  at::Tensor summed_whole(const at::Tensor& gradient, double factor) const;

  at::Tensor table_;
  Group group_;
  std::optional<at::ScalarType> type_;
  // It carries the hook. A shared_ptr in LibTorch 2.11, an intrusive_ptr in 2.15.
  decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator_;
  std::uintptr_t hook_ = 0;
  bool reached_ = false;
};

}  // namespace hasten
