// File: prepare/exchange_announcer.h (internal)
// Announces this process's next collective to the others, where processes may reach different ones:
// inside join_uneven_inputs, and at the end of an accumulation window of several models.
//
//   ExchangeAnnouncer announcer(group, models);
//   const MessageExchange& messages =
//       announcer.announce_backward(to_exchange, JoinPass::closing, /*sums_weights=*/true);
//   const auto announced = announcer.models_from_bits(messages.announced_models());
//
// In a group with one process no messages are exchanged. Throws UsageError "prepare.nested-join",
// "prepare.join-call", "prepare.join-model" and the exceptions of MessageExchange. Thread rule: one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "hasten/process/group.h"
#include "prepare/data_parallel_model.h"
#include "prepare/join_messages.h"

namespace hasten {

class ExchangeAnnouncer {
 public:
  // `models` has all prepared models, now and later, and must outlive this object.
  ExchangeAnnouncer(Group group, const std::vector<std::unique_ptr<DataParallelModel>>& models);

  // Begins a scope in which processes may run out of data. Throws "prepare.nested-join".
  void begin_join(const std::vector<torch::nn::Module*>& models);
  void end_join() { join_.reset(); }
  // Returns null outside of join_uneven_inputs.
  Join* join() const { return join_.get(); }

  // Call it before a collective in which a process without data cannot take part. Throws
  // "prepare.join-call" if there is such a process.
  void require_all_have_data(const char* call);
  // Call it before tensors are gathered row by row. Returns the rank that describes the tensors to
  // the processes without data, or -1 if all have data.
  std::int64_t announce_rows();
  // Call it before the buffers of the model are broadcast. Returns the rank that sends them.
  std::int64_t announce_buffers(DataParallelModel* model);
  // Announces a backward pass that exchanges these models. Returns the messages of all processes.
  const MessageExchange& announce_backward(const std::vector<DataParallelModel*>& models,
                                           JoinPass pass, bool sums_weights);
  // Returns the models that a message names.
  std::vector<DataParallelModel*> models_from_bits(std::int64_t bits) const;

 private:
  MessageExchange& message_exchange();
  std::int64_t model_bits(const std::vector<DataParallelModel*>& models) const;
  [[noreturn]] void throw_cannot_name(std::size_t model) const;

  const Group group_;
  const std::vector<std::unique_ptr<DataParallelModel>>& models_;
  // Set inside join_uneven_inputs only.
  std::unique_ptr<Join> join_;
  // Exchanges the messages outside join_uneven_inputs. Null before the first one.
  std::unique_ptr<MessageExchange> message_exchange_;
};

}  // namespace hasten
