#include "data/dispatch.h"

#include <ATen/ATen.h>

#include <cstring>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <utility>

#include "hasten/base/error.h"
#include "hasten/base/text.h"
#include "process/group/serialized_exception.h"

namespace hasten::detail {
namespace {

constexpr int kHeaderTag = 0, kBodyTag = 1;  // message tags

// The first message of a step. The second message has `bytes` bytes; 0 means that there is none.
struct MessageHeader {
  BatchPosition position;
  std::int64_t step_rows = 0, rows = 0, real_rows = 0;
  std::int64_t failed = 0;
  std::int64_t bytes = 0;
};
constexpr std::int64_t kHeaderNumbers = sizeof(MessageHeader) / sizeof(std::int64_t);
static_assert(sizeof(MessageHeader) == kHeaderNumbers * sizeof(std::int64_t));

at::Tensor bytes_of(const std::string& text) {
  at::Tensor bytes = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

// Returns the exception that rank 0 threw.
std::exception_ptr exception_from(const at::Tensor& bytes) {
  const std::string serialized(static_cast<const char*>(bytes.const_data_ptr()),
                               static_cast<std::size_t>(bytes.numel()));
  const RemoteException carried = deserialize_exception(serialized);
  if (carried.error) return carried.error;
  return std::make_exception_ptr(DataError(
      "data.batch", {.what = "making the next batches on rank 0 failed", .got = carried.message}));
}

using SendWork = c10::intrusive_ptr<c10d::Work>;

SendWork send(const Group& group, const at::Tensor& tensor, std::int64_t to, int tag) {
  std::vector<at::Tensor> tensors = {tensor};
  return group.native()->send(tensors, static_cast<int>(to), tag);
}

void receive_into(const Group& group, const at::Tensor& tensor, int tag) {
  std::vector<at::Tensor> tensors = {tensor};
  group.native()->recv(tensors, 0, tag)->wait();
}

std::string text_of(const BatchPosition& position) {
  return str("batch ", position.number, " of epoch ", position.epoch, ", in pass ", position.pass);
}

}  // namespace

BatchDispatcher::BatchDispatcher(const Group& group, Pack pack, Unpack unpack)
    : group_(group.duplicate()), pack_(std::move(pack)), unpack_(std::move(unpack)) {}

at::Tensor BatchDispatcher::body_of(const BatchResult& result) const {
  if (result.error) return bytes_of(serialize_exception(result.error));
  return result.batch ? pack_(result.batch) : at::Tensor();
}

void BatchDispatcher::send(const BatchPosition& position,
                           const std::vector<BatchResult>& parts) const {
  // Packs all parts before it sends any: if one cannot be packed, every process gets the error
  // instead of its part.
  std::vector<at::Tensor> bodies(parts.size()), headers;  // kept until they are sent
  try {
    for (std::size_t to = 1; to < parts.size(); ++to) bodies[to] = body_of(parts[to]);
  } catch (...) {
    send_to_all(position, {.error = std::current_exception()});
    throw;
  }
  std::vector<SendWork> pending_sends;
  for (std::int64_t to = 1; to < group_.size(); ++to) {
    const BatchResult& result = parts[static_cast<std::size_t>(to)];
    const at::Tensor& body = bodies[static_cast<std::size_t>(to)];
    const MessageHeader header{.position = position,
                               .step_rows = result.step_rows,
                               .rows = result.info.rows,
                               .real_rows = result.info.real_rows,
                               .failed = result.error ? 1 : 0,
                               .bytes = body.defined() ? body.numel() : 0};
    at::Tensor numbers = at::empty({kHeaderNumbers}, at::kLong);
    std::memcpy(numbers.data_ptr(), &header, sizeof header);
    headers.push_back(numbers);
    pending_sends.push_back(detail::send(group_, numbers, to, kHeaderTag));
    if (!body.defined()) continue;
    pending_sends.push_back(detail::send(group_, body, to, kBodyTag));
  }
  for (const SendWork& work : pending_sends) work->wait();
}

void BatchDispatcher::send_to_all(const BatchPosition& position, const BatchResult& result) const {
  send(position, std::vector<BatchResult>(static_cast<std::size_t>(group_.size()), result));
}

BatchResult BatchDispatcher::receive(const BatchPosition& position) const {
  for (;;) {
    at::Tensor numbers = at::empty({kHeaderNumbers}, at::kLong);
    receive_into(group_, numbers, kHeaderTag);
    MessageHeader header;
    std::memcpy(&header, numbers.const_data_ptr(), sizeof header);
    at::Tensor body;
    if (header.bytes > 0) {
      body = at::empty({header.bytes}, at::kByte);
      receive_into(group_, body, kBodyTag);
    }
    if (header.position.pass < position.pass) continue;  // this process left that pass early
    if (header.failed != 0) return {.error = exception_from(body)};
    if (header.position != position) {
      throw UsageError(
          "data.dispatch-order",
          {.what = str("rank ", group_.rank(),
                       " and rank 0, which reads for it, are at different batches of a loader"),
           .got = text_of(position),
           .expected = text_of(header.position) + ", as on rank 0",
           .hint =
               "iterate over the loader in the same way in every process: make the same passes, "
               "leave them at the same batch, and call set_epoch and load_state everywhere"});
    }
    BatchResult result{.step_rows = header.step_rows,
                       .info = {.rows = header.rows, .real_rows = header.real_rows}};
    if (body.defined()) result.batch = unpack_(body);
    return result;
  }
}

}  // namespace hasten::detail
