#include <algorithm>
#include <string>
#include <vector>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "hasten/ops/ops.h"
#include "ops/cpu.h"
#include "ops/embedding_gradient.h"
#include "ops/gpu_rows.h"

namespace hasten::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_ids(const Tensor& ids, std::int64_t rows, const char* table) {
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    if (id[i] < 0 || id[i] >= rows) {
      const std::int64_t length = ids.size(-1);
      throw DataError(
          "models.id-out-of-range",
          {.what = str(table, ", row ", i / length, " position ", i % length, " of the batch"),
           .got = str("id ", id[i]),
           .expected = str("0 to ", rows - 1),
           .hint = "use the tokenizer that belongs to the model"});
    }
  }
}

// Adds the row to `to`.
void add_row(const float* row, float* to, std::int64_t columns) {
  for (std::int64_t c = 0; c < columns; ++c) to[c] += row[c];
}

void embedding_sum_forward_cpu(const Tensor& word, const std::optional<Tensor>& position,
                               const std::optional<Tensor>& type, const Tensor& ids,
                               const std::optional<Tensor>& position_ids,
                               const std::optional<Tensor>& type_ids, const Tensor& out) {
  const std::int64_t length = ids.size(1), columns = word.size(1);
  const auto ids_of = [](const std::optional<Tensor>& x) {
    return x ? x->const_data_ptr<std::int64_t>() : nullptr;
  };
  const auto table_of = [](const std::optional<Tensor>& x) {
    return x ? x->const_data_ptr<float>() : nullptr;
  };
  const float *words = word.const_data_ptr<float>(), *positions = table_of(position),
              *types = table_of(type);
  const std::int64_t *id = ids.const_data_ptr<std::int64_t>(), *position_id = ids_of(position_ids),
                     *type_id = ids_of(type_ids);
  float* all = out.mutable_data_ptr<float>();
  for_rows(out, [&](std::int64_t first, std::int64_t last, std::int64_t) {
    for (std::int64_t i = first; i < last; ++i) {
      float* to = all + i * columns;
      const float* w = words + id[i] * columns;
      const float* p =
          positions ? positions + (position_id ? position_id[i] : i % length) * columns : nullptr;
      const float* t = types ? types + (type_id ? type_id[i] : 0) * columns : nullptr;
      if (p && t) {
        for (std::int64_t c = 0; c < columns; ++c) to[c] = w[c] + t[c] + p[c];
        continue;
      }
      std::copy_n(w, columns, to);
      if (t) add_row(t, to, columns);
      if (p) add_row(p, to, columns);
    }
  });
}

// Adds row i of `values` to row ids[i] of the table, except for ids equal to `skipped`.
void scatter_cpu(const Tensor& values, const Tensor& ids, std::int64_t skipped,
                 const Tensor& table) {
  const std::int64_t columns = values.size(1);
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  const float* from = values.const_data_ptr<float>();
  float* to = table.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    if (id[i] == skipped) continue;
    float* row = to + id[i] * columns;
    for (std::int64_t c = 0; c < columns; ++c) row[c] += from[i * columns + c];
  }
}

// Does the same for a table of only the rows `used`, in ascending order.
void gather_cpu(const Tensor& values, const Tensor& ids, const Tensor& used, const Tensor& table) {
  const std::int64_t columns = values.size(1);
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  const std::int64_t *begin = used.const_data_ptr<std::int64_t>(), *end = begin + used.numel();
  const float* from = values.const_data_ptr<float>();
  float* to = table.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < values.size(0); ++i) {
    const std::int64_t* place = std::lower_bound(begin, end, id[i]);
    if (place == end || *place != id[i]) continue;  // The skipped id.
    float* row = to + (place - begin) * columns;
    for (std::int64_t c = 0; c < columns; ++c) row[c] += from[i * columns + c];
  }
}

TORCH_LIBRARY_FRAGMENT(hasten, library) {
  add_operator(library,
               "embedding_sum(Tensor word, Tensor? position, Tensor? type, Tensor ids, "
               "Tensor? position_ids, Tensor? type_ids, Tensor(a!) out) -> ()",
               embedding_sum_forward_cpu);
  add_operator(library,
               "embedding_scatter(Tensor values, Tensor ids, int skipped, Tensor(a!) table) -> ()",
               scatter_cpu);
  add_operator(library,
               "embedding_gather(Tensor values, Tensor ids, Tensor used, Tensor(a!) table) -> ()",
               gather_cpu);
  add_device_operator(library,
                      "embedding_gradient(Tensor gradient, Tensor order, Tensor ids, int skipped, "
                      "Tensor(a!) partial, Tensor(b!) table) -> ()");
}

constexpr std::int64_t kNoTable = -1, kNoPadding = -1;

Tensor dense_gradient(const Tensor& values, const Tensor& ids, std::int64_t rows,
                      std::int64_t skipped) {
  const Tensor table = at::zeros({rows, values.size(1)}, values.options());
  call_operator<scatter_cpu>("hasten::embedding_scatter", values, ids, skipped, table);
  return table;
}

std::vector<std::int64_t> distinct(const Tensor& ids, std::int64_t skipped) {
  const std::int64_t* id = ids.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> out(id, id + ids.numel());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  std::erase(out, skipped);
  return out;
}

Tensor indices_of(const std::vector<std::int64_t>& rows) {
  Tensor indices = at::empty({1, static_cast<std::int64_t>(rows.size())}, at::kLong);
  std::copy(rows.begin(), rows.end(), indices.mutable_data_ptr<std::int64_t>());
  return indices;
}

// Returns a coalesced sparse tensor of the rows that occur.
Tensor sparse_gradient(const Tensor& values, const Tensor& ids, std::int64_t rows,
                       std::int64_t skipped) {
  const Tensor indices = indices_of(distinct(ids, skipped));
  const Tensor sums = at::zeros({indices.size(1), values.size(1)}, values.options());
  call_operator<gather_cpu>("hasten::embedding_gather", values, ids, indices, sums);
  return at::_sparse_coo_tensor_unsafe(indices, sums, {rows, values.size(1)},
                                       values.options().layout(at::kSparse), /*is_coalesced=*/true);
}

// Computes the tables' gradients with LibTorch's operators, with the same values and layouts.
Tensor differentiable_dense_gradient(const Tensor& values, const Tensor& ids, std::int64_t rows,
                                     std::int64_t skipped) {
  return at::embedding_dense_backward(values, ids.reshape(-1), rows, skipped,
                                      /*scale_grad_by_freq=*/false);
}

Tensor differentiable_sparse_gradient(const Tensor& values, const Tensor& ids, std::int64_t rows,
                                      std::int64_t skipped) {
  const Tensor indices = indices_of(distinct(ids, skipped));
  const std::int64_t count = indices.size(1);
  // Skipped ids go to an extra last row, which is cut off.
  const Tensor place = at::searchsorted(indices[0], ids).masked_fill(ids.eq(skipped), count);
  const Tensor sums =
      differentiable_dense_gradient(values, place, count + 1, kNoPadding).narrow(0, 0, count);
  return at::_sparse_coo_tensor_unsafe(indices, sums, {rows, values.size(1)},
                                       values.options().layout(at::kSparse), /*is_coalesced=*/true);
}

// Returns the positions of ids without position_ids.
Tensor places_of(const Tensor& ids) {
  return at::arange(ids.size(1), ids.options()).expand_as(ids);
}

std::int64_t rows_or_none(const std::optional<Tensor>& table) {
  return table ? table->size(0) : kNoTable;
}

// A function that returns the gradient of a table from the rows of the result's gradient.
using TableGradient = Tensor (*)(const Tensor& values, const Tensor& ids, std::int64_t rows,
                                 std::int64_t skipped);

// Returns the gradient of the table of positions. Without position_ids each row of the batch uses
// the first rows of the table.
Tensor position_gradient(TableGradient gradient, const Tensor& flat, const Tensor& position_ids,
                         const Tensor& ids, std::int64_t rows) {
  if (position_ids.defined()) return gradient(flat, position_ids, rows, kNoPadding);
  const std::int64_t batch = ids.size(0), length = ids.size(1), columns = flat.size(1);
  const Tensor table = at::zeros({rows, columns}, flat.options());
  table.narrow(0, 0, length).copy_(flat.view({batch, length, columns}).sum(0));
  return table;
}

// Returns the same for the table of types. Without type_ids every token has type 0.
Tensor type_gradient(TableGradient gradient, const Tensor& flat, const Tensor& type_ids,
                     std::int64_t rows) {
  if (type_ids.defined()) return gradient(flat, type_ids, rows, kNoPadding);
  const Tensor table = at::zeros({rows, flat.size(1)}, flat.options());
  table.select(0, 0).copy_(flat.sum(0));
  return table;
}

struct EmbeddingSum : torch::autograd::Function<EmbeddingSum> {
  static Tensor forward(AutogradContext* context, const Tensor& word,
                        const std::optional<Tensor>& position, const std::optional<Tensor>& type,
                        const Tensor& ids, const std::optional<Tensor>& position_ids,
                        const std::optional<Tensor>& type_ids, std::int64_t padding_id,
                        bool sparse) {
    const Tensor out = at::empty({ids.size(0), ids.size(1), word.size(1)}, word.options());
    call_operator<embedding_sum_forward_cpu>("hasten::embedding_sum", word, position, type, ids,
                                             position_ids, type_ids, out);
    context->save_for_backward({ids, position_ids.value_or(Tensor()), type_ids.value_or(Tensor())});
    context->saved_data["rows"] =
        std::vector<std::int64_t>{word.size(0), rows_or_none(position), rows_or_none(type)};
    context->saved_data["sparse"] = sparse;
    context->saved_data["padding_id"] = padding_id;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto rows = context->saved_data["rows"].toIntVector();
    const Tensor &ids = saved[0], &position_ids = saved[1], &type_ids = saved[2];
    const std::int64_t padding_id = context->saved_data["padding_id"].toInt();
    const bool sparse = context->saved_data["sparse"].toBool();
    const Tensor flat = as_rows(grads[0]).contiguous();
    // The results of the kernels cannot be differentiated.
    const bool on_cpu = ids.device().is_cpu();
    const bool has_kernels =
        (on_cpu || fuses_embedding_gradient(flat)) && !needs_second_derivative();
    const TableGradient dense = !has_kernels ? differentiable_dense_gradient
                                : on_cpu     ? dense_gradient
                                             : embedding_gradient;
    variable_list gradients(8);
    // LibTorch counts only the defined tables. A gradient is as large as its table, so the gradient
    // of a frozen table is left out.
    std::size_t table = 0;
    if (context->needs_input_grad(table++)) {
      const auto of_rows = has_kernels ? sparse_gradient : differentiable_sparse_gradient;
      gradients[0] = (sparse ? of_rows : dense)(flat, ids, rows[0], padding_id);
    }
    if (rows[1] != kNoTable && context->needs_input_grad(table++)) {
      gradients[1] = has_kernels
                         ? position_gradient(dense, flat, position_ids, ids, rows[1])
                         : dense(flat, position_ids.defined() ? position_ids : places_of(ids),
                                 rows[1], kNoPadding);
    }
    if (rows[2] != kNoTable && context->needs_input_grad(table++)) {
      gradients[2] = has_kernels ? type_gradient(dense, flat, type_ids, rows[2])
                                 : dense(flat, type_ids.defined() ? type_ids : at::zeros_like(ids),
                                         rows[2], kNoPadding);
    }
    return gradients;
  }
};

std::string shape_or_none(const Tensor& x) {
  return x.defined() ? c10::str(x.sizes()) : std::string("none");
}

void check_tables(const Tensor& word, const Tensor& position, const Tensor& type) {
  const auto fits = [&](const Tensor& x) {
    return !x.defined() || (x.dim() == 2 && x.size(1) == word.size(1));
  };
  TORCH_CHECK(word.dim() == 2 && fits(position) && fits(type), "embedding_sum: got tables word ",
              word.sizes(), ", position ", shape_or_none(position), " and type ",
              shape_or_none(type), ", expected three of [rows, n] with the same n");
}

void check_integers(const Tensor& ids, const char* name) {
  TORCH_CHECK(!ids.defined() || at::isIntegralType(ids.scalar_type(), /*includeBool=*/false),
              "embedding_sum: got ", name, " of type ", ids.scalar_type(), ", expected integers");
}

// Computes the same sum with LibTorch's operators.
Tensor reference_sum(const Tensor& word, const Tensor& position, const Tensor& type,
                     const Tensor& ids, const Tensor& position_ids, const Tensor& type_ids,
                     std::int64_t padding_id) {
  Tensor sum = at::embedding(word, ids, padding_id);
  if (type.defined())
    sum = sum + (type_ids.defined() ? at::embedding(type, type_ids) : type.select(0, 0));
  if (position.defined()) {
    sum = sum + (position_ids.defined() ? at::embedding(position, position_ids)
                                        : position.narrow(0, 0, ids.size(1)));
  }
  return sum;
}

}  // namespace

bool fuses_embedding_gradient(const Tensor& values) {
  return values.scalar_type() == at::kFloat && has_device_kernels(values, at::kFloat);
}

Tensor embedding_gradient(const Tensor& values, const Tensor& ids, std::int64_t rows,
                          std::int64_t skipped) {
  const auto [sorted, order] =
      at::sort(ids.reshape(-1).to(at::kInt), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  const std::int64_t columns = values.size(1);
  const Tensor table = at::zeros({rows, columns}, values.options());
  const Tensor partial =
      at::empty({chunks_of_embedding_gradient(sorted.numel()), 2, columns}, values.options());
  call_operator<embedding_gradient_gpu>("hasten::embedding_gradient", values, order, sorted,
                                        skipped, partial, table);
  return table;
}

Tensor embedding_sum(const Tensor& word, const Tensor& position, const Tensor& type,
                     const Tensor& ids, const Tensor& position_ids, const Tensor& type_ids,
                     std::int64_t padding_id, bool sparse) {
  check_tables(word, position, type);
  TORCH_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong, "embedding_sum: got ids ",
              ids.sizes(), " ", ids.scalar_type(), ", expected [batch, length] int64");
  check_integers(position_ids, "position_ids");
  check_integers(type_ids, "type_ids");
  TORCH_CHECK(
      type_ids.defined() || !type.defined() || type.size(0) > 0,
      "embedding_sum: got an empty table of types and no type_ids, expected a table with type 0");
  if (position.defined() && ids.size(1) > position.size(0) && !position_ids.defined()) {
    throw DataError("models.sequence-too-long",
                    {.what = "a batch of ids",
                     .got = str(ids.size(1), " tokens per row"),
                     .expected = str("at most ", position.size(0), " (max_position_embeddings)"),
                     .hint = "truncate when tokenizing (--max_length)"});
  }
  const auto fits = [&](const Tensor& table) {
    return !table.defined() || fits_row_kernels(word, {table});
  };
  if (!fits(word) || !fits(position) || !fits(type))
    return reference_sum(word, position, type, ids, position_ids, type_ids, padding_id);
  const auto integers = [](const Tensor& x) {
    return x.defined() ? x.to(at::kLong).contiguous() : x;
  };
  // Ids without a table have no effect.
  const Tensor rows = integers(ids),
               positions = position.defined() ? integers(position_ids) : Tensor(),
               types = type.defined() ? integers(type_ids) : Tensor();
  for (const Tensor& each : {rows, positions, types}) {
    TORCH_CHECK(!each.defined() || each.device() == word.device(), "embedding_sum: got ids on ",
                each.device(), " and tables on ", word.device());
  }
  // The ids are checked before they are expanded: in a dry run the copy has no content. On another
  // device the host does not wait for them, and the kernel checks them.
  if (word.device().is_cpu()) {
    check_ids(rows, word.size(0), "input_ids");
    if (positions.defined()) check_ids(positions, position.size(0), "position_ids");
    if (types.defined()) check_ids(types, type.size(0), "token_type_ids");
  }
  // One row of positions may serve all rows of the batch.
  const auto like_ids = [&](const Tensor& x) {
    return x.defined() ? std::make_optional(x.expand_as(ids).contiguous()) : std::nullopt;
  };
  const auto table_or_none = [](const Tensor& x) {
    return x.defined() ? std::make_optional(x.contiguous()) : std::nullopt;
  };
  return EmbeddingSum::apply(word.contiguous(), table_or_none(position), table_or_none(type), rows,
                             like_ids(positions), like_ids(types), padding_id,
                             sparse && word.device().is_cpu());
}

}  // namespace hasten::ops
