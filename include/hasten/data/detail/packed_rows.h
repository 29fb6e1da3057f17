// File: hasten/data/detail/packed_rows.h
// The names of the tensors that tell a model where the rows of a packed batch begin.
//
//   batch[kPackedRows] = at::tensor({0, 3, 8}, at::kInt);     // rows of 3 and of 5 tokens
//
// Thread rule: constants.
#pragma once

namespace hasten {

// The tensor of a packed batch, int32 [rows + 1]: the offset of each row, and the end of the last
// one.
inline constexpr const char* kPackedRows = "cu_seq_lens_q";
// A copy of that tensor in host memory. A batch gets it when it is moved to another device, so that
// a model knows the lengths of the rows without waiting for the device.
inline constexpr const char* kPackedRowsOnHost = "cu_seq_lens_on_host";

}  // namespace hasten
