// File: ops/softmax_dropout.h (internal)
// The softmax of attention's scores and its dropout in one pass, on a device that has a kernel for it. It
// keeps the products, a number for each row and the seed of the dropout: no probabilities and no mask.
//
//   if (fuses_softmax_dropout(products, mask))
//     p = softmax_dropout(products, mask, causal, scale, draw_dropout(p, training));
//
// Thread rule: any thread.
#pragma once

#include "ops/dropout_state.h"

namespace hasten::ops {

// products [batch, heads, queries, keys], mask [batch, keys] or undefined.
bool fuses_softmax_dropout(const at::Tensor& products, const at::Tensor& mask);

// Returns dropout(softmax(scale products + mask)) in the type of the products, and zeros for a query
// without a key. With `causal` the queries are the last of the keys. The mask, 0 or -infinity, gets no
// gradient.
at::Tensor softmax_dropout(const at::Tensor& products, const at::Tensor& mask, bool causal,
                           double scale, const DropoutState& dropout);

}  // namespace hasten::ops
