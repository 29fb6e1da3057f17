// File: ops/softmax_dropout.h (internal)
// Computes the softmax of attention scores and its dropout in one pass, on a device that has a
// kernel for it. For the backward pass it keeps the products, one number for each row and the seed
// of the dropout. It keeps no probabilities and no dropout mask.
//
//   if (fuses_softmax_dropout(products, mask))
//     p = softmax_dropout(products, mask, causal, scale, draw_dropout(p, training));
//
// Thread rule: any thread.
#pragma once

#include "ops/dropout_state.h"

namespace hasten::ops {

// Returns whether the device has a kernel for these products [batch, heads, queries, keys] and this
// mask [batch, keys], which may be undefined.
bool fuses_softmax_dropout(const at::Tensor& products, const at::Tensor& mask);

// Returns dropout(softmax(scale products + mask)) in the type of the products, and zeros for a
// query without keys. With `causal` the queries are the last positions of the keys. The mask holds
// 0 or -infinity and gets no gradient.
at::Tensor softmax_dropout(const at::Tensor& products, const at::Tensor& mask, bool causal,
                           double scale, const DropoutState& dropout);

}  // namespace hasten::ops
