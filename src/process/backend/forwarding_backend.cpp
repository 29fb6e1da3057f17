#include "process/backend/forwarding_backend.h"

namespace hasten {

const char* reduction_name(const c10d::ReduceOp& operation) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(operation)) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return "";
    case c10d::ReduceOp::AVG:
      return "mean";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    case c10d::ReduceOp::MIN:
      return "min";
    case c10d::ReduceOp::MAX:
      return "max";
    case c10d::ReduceOp::BAND:
      return "bitwise and";
    case c10d::ReduceOp::BOR:
      return "bitwise or";
    case c10d::ReduceOp::BXOR:
      return "bitwise xor";
    default:
      return "unknown";
  }
}

}  // namespace hasten
