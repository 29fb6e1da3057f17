#include "prepare/row_exchange.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "optim/coalesced.h"

namespace hasten {
namespace {

constexpr std::int64_t kDense = -1;

bool is_row_sparse(const at::Tensor& gradient) {
  return gradient.is_sparse() && gradient.sparse_dim() == 1;
}

// Packs row indices and rows into one tensor of bytes, so that a single collective can send them.
struct PackedRows {
  std::int64_t rows;                // the largest number of rows in a process
  std::vector<std::int64_t> shape;  // the shape of one row
  at::ScalarType type;

  std::int64_t index_bytes() const {
    return rows * static_cast<std::int64_t>(sizeof(std::int64_t));
  }
  std::int64_t row_bytes() const {
    return c10::multiply_integers(shape) * static_cast<std::int64_t>(c10::elementSize(type));
  }
  std::int64_t bytes() const { return (index_bytes() + rows * row_bytes() + 7) / 8 * 8; }

  at::Tensor pack(const at::Tensor& indices, const at::Tensor& values) const {
    at::Tensor out = at::empty({bytes()}, values.options().dtype(at::kByte));
    indices_in(out, indices.numel()).copy_(indices);
    values_in(out, indices.numel()).copy_(values);
    return out;
  }
  at::Tensor indices_in(const at::Tensor& packed_rows, std::int64_t count) const {
    return packed_rows.narrow(0, 0, count * 8).view(at::kLong);
  }
  at::Tensor values_in(const at::Tensor& packed_rows, std::int64_t count) const {
    std::vector<std::int64_t> sizes = {count};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    return packed_rows.narrow(0, index_bytes(), count * row_bytes()).view(type).view(sizes);
  }
};

}  // namespace

RowExchange::RowExchange(at::Tensor table, Group group, std::optional<at::ScalarType> type)
    : table_(std::move(table)),
      group_(std::move(group)),
      type_(type),
      accumulator_(torch::autograd::impl::grad_accumulator(table_)) {
  using torch::autograd::variable_list;
  hook_ = accumulator_->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
      [this](const variable_list& outputs, const variable_list&) {
        got_gradient_ = true;
        return outputs;
      }));
}

RowExchange::~RowExchange() { accumulator_->del_post_hook(hook_); }

void RowExchange::sum(double factor) {
  const torch::NoGradGuard no_grad;
  at::Tensor& gradient = table_.mutable_grad();
  const at::Tensor own =
      gradient.defined() && is_row_sparse(gradient) ? coalesced(gradient) : gradient;
  const std::vector<std::int64_t> counts = counts_of(own);
  const auto [min_count, max_count] = std::minmax_element(counts.begin(), counts.end());
  // No process has rows. All processes clear the gradient, so that their optimizers see the same.
  if (*max_count == 0 && *min_count == 0) {
    gradient.reset();
    return;
  }
  const bool whole = *min_count == kDense || *max_count * group_.size() * 2 > table_.size(0);
  gradient = whole ? summed_table(own, factor) : summed_rows(own, counts, factor);
}

std::vector<std::int64_t> RowExchange::counts_of(const at::Tensor& gradient) const {
  std::int64_t own = 0;
  if (gradient.defined()) own = is_row_sparse(gradient) ? gradient._nnz() : kDense;
  const at::Tensor all = group_.gather(at::full({1}, own, table_.options().dtype(at::kLong))).cpu();
  const std::int64_t* const begin = all.const_data_ptr<std::int64_t>();
  return {begin, begin + all.numel()};
}

at::Tensor RowExchange::summed_rows(const at::Tensor& gradient,
                                    const std::vector<std::int64_t>& counts, double factor) const {
  const std::vector<std::int64_t> shape(table_.sizes().begin() + 1, table_.sizes().end());
  const PackedRows packed_rows{.rows = *std::max_element(counts.begin(), counts.end()),
                               .shape = shape,
                               .type = type_.value_or(table_.scalar_type())};
  at::Tensor indices, values;
  if (gradient.defined()) {
    indices = gradient.indices().select(0, 0);
    values = factor == 1.0 ? gradient.values() : gradient.values() * factor;
  } else {
    indices = at::empty({0}, table_.options().dtype(at::kLong));
    values = table_.detach().narrow(0, 0, 0);
  }
  const at::Tensor all = group_.gather(packed_rows.pack(indices, values));
  std::vector<at::Tensor> all_indices, all_values;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    const at::Tensor of_rank =
        all.narrow(0, static_cast<std::int64_t>(rank) * packed_rows.bytes(), packed_rows.bytes());
    all_indices.push_back(packed_rows.indices_in(of_rank, counts[rank]));
    all_values.push_back(packed_rows.values_in(of_rank, counts[rank]).to(table_.scalar_type()));
  }
  return at::_sparse_coo_tensor_unsafe(at::cat(all_indices).unsqueeze(0), at::cat(all_values),
                                       table_.sizes(),
                                       table_.options().layout(at::kSparse).requires_grad(false))
      .coalesce();
}

at::Tensor RowExchange::summed_table(const at::Tensor& gradient, double factor) const {
  at::Tensor whole = !gradient.defined()    ? at::zeros_like(table_)
                     : gradient.is_sparse() ? gradient.to_dense()
                                            : gradient.contiguous();
  if (factor != 1.0) whole.mul_(factor);
  std::vector<at::Tensor> tensors = {type_ ? whole.to(*type_) : whole};
  group_.native()->allreduce(tensors)->wait();
  if (type_) whole.copy_(tensors[0]);
  return whole;
}

}  // namespace hasten
