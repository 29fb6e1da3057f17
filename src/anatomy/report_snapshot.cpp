// Writes the report as a memory snapshot of PyTorch. Source: the types Snapshot, Segment, Block,
// TraceEntry and Frame of PyTorch's page "Understanding CUDA Memory Usage", and
// torch/cuda/_memory_viz.py.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "anatomy/caching_allocator.h"
#include "formats/pickle_writer.h"
#include "hasten/anatomy/report.h"

namespace hasten::anatomy {
namespace {

// A memory viewer shows addresses in hexadecimal; the first one is a multiple of 4 GiB.
constexpr std::int64_t kFirstAddress = std::int64_t{1} << 32;
constexpr std::int64_t kAlignment = 512;

// A block of a segment. `requested` is 0 for a free block.
struct PlacedBlock {
  std::int64_t address = 0, bytes = 0, requested = 0;
  std::int32_t block = -1;  // index in MemoryHistory::blocks; -1 means free
};

struct PlacedSegment {
  std::int64_t address = 0, bytes = 0;
  bool small = false;
  std::int64_t stream = 0;
  std::vector<PlacedBlock> blocks;
};

// Assigns simulated addresses to allocations.
class AddressAssigner {
 public:
  using Listener = std::function<void(bool is_taken, std::int64_t address, std::int64_t bytes,
                                      std::int64_t stream)>;

  virtual ~AddressAssigner() = default;
  // Return the address of a block of the history. `number` is its index there.
  virtual std::int64_t allocate(std::int32_t number, const MemoryHistory::Block& block) = 0;
  virtual std::int64_t release(std::int32_t number) = 0;
  // Called once the release has been written.
  virtual void after_release() {}
  virtual std::vector<PlacedSegment> segments() const = 0;
};

// On the CPU each allocation is a separate segment.
class SeparateSegments : public AddressAssigner {
 public:
  explicit SeparateSegments(Listener listener) : listener_(std::move(listener)) {}

  std::int64_t allocate(std::int32_t number, const MemoryHistory::Block& block) override {
    const std::int64_t address = next_;
    next_ += (block.bytes + kAlignment - 1) / kAlignment * kAlignment;
    alive_[number] = {address, block.bytes};
    listener_(true, address, block.bytes, /*stream=*/0);
    return address;
  }

  std::int64_t release(std::int32_t number) override {
    const auto found = alive_.find(number);
    const auto [address, bytes] = found->second;
    released_ = {address, bytes};
    alive_.erase(found);
    return address;
  }

  void after_release() override { listener_(false, released_.first, released_.second, 0); }

  std::vector<PlacedSegment> segments() const override {
    std::vector<PlacedSegment> out;
    for (const auto& [block, place] : alive_) {
      const auto [address, bytes] = place;
      out.push_back({.address = address,
                     .bytes = bytes,
                     .small = false,
                     .blocks = {{address, bytes, bytes, block}}});
    }
    return out;
  }

 private:
  Listener listener_;
  std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> alive_;  // by block
  std::pair<std::int64_t, std::int64_t> released_;
  std::int64_t next_ = kFirstAddress;
};

// On a GPU the rules of LibTorch's allocator determine the addresses.
class CachedSegments : public AddressAssigner {
 public:
  CachedSegments(std::int64_t capacity, Listener listener) : memory_(capacity) {
    memory_.on_segment(
        [listener = std::move(listener)](bool is_taken, const CachingAllocator::Segment& segment) {
          listener(is_taken, kFirstAddress + segment.address, segment.bytes, segment.stream);
        });
  }

  std::int64_t allocate(std::int32_t number, const MemoryHistory::Block& block) override {
    CachingAllocator::Block* const made = memory_.allocate(block.bytes, block.stream);
    alive_[number] = made;
    blocks_[made] = {number, block.bytes};
    return kFirstAddress + made->address;
  }

  std::int64_t release(std::int32_t number) override {
    const auto found = alive_.find(number);
    CachingAllocator::Block* const made = found->second;
    const std::int64_t address = kFirstAddress + made->address;
    alive_.erase(found);
    blocks_.erase(made);
    memory_.free(made);
    return address;
  }

  std::vector<PlacedSegment> segments() const override {
    std::vector<PlacedSegment> out;
    for (const CachingAllocator::Segment& segment : memory_.segments()) {
      PlacedSegment& placed = out.emplace_back();
      placed.address = kFirstAddress + segment.address;
      placed.bytes = segment.bytes;
      placed.small = segment.small;
      placed.stream = segment.stream;
      for (const CachingAllocator::Block* block : segment.blocks) {
        const auto found = blocks_.find(block);
        const bool is_used = found != blocks_.end();
        placed.blocks.push_back({.address = kFirstAddress + block->address,
                                 .bytes = block->bytes,
                                 .requested = is_used ? found->second.second : 0,
                                 .block = is_used ? found->second.first : -1});
      }
    }
    return out;
  }

 private:
  CachingAllocator memory_;
  std::map<std::int32_t, CachingAllocator::Block*> alive_;
  std::map<const CachingAllocator::Block*, std::pair<std::int32_t, std::int64_t>> blocks_;
};

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const Report& report)
      : history_(report.memory.history), gpu_(report.memory.gpu) {}

  std::string write() && {
    out_.begin_dict();
    out_.key("device_traces");
    out_.begin_list();
    write_trace();
    out_.end_list();
    out_.key("segments");
    write_segments();
    out_.end_dict();
    return std::move(out_).finish();
  }

 private:
  // Writes the events of one device.
  void write_trace() {
    const auto on_segment = [this](bool is_taken, std::int64_t address, std::int64_t bytes,
                                   std::int64_t stream) {
      write_event(is_taken ? "segment_alloc" : "segment_free", address, bytes, stream, nullptr);
    };
    if (gpu_) {
      addresses_ = std::make_unique<CachedSegments>(device_bytes(), on_segment);
    } else {
      addresses_ = std::make_unique<SeparateSegments>(on_segment);
    }
    out_.begin_list();
    for (std::size_t i = 0; i < history_.events.size(); ++i) {
      const MemoryHistory::Event& event = history_.events[i];
      const MemoryHistory::Block& block = history_.blocks[static_cast<std::size_t>(event.block)];
      now_ = event.seconds;
      if (static_cast<std::int64_t>(i) == history_.out_of_memory_event) write_out_of_memory(block);
      if (event.is_allocation) {
        write_event("alloc", addresses_->allocate(event.block, block), block.bytes, block.stream,
                    &block);
        live_ += block.bytes;
        continue;
      }
      live_ -= block.bytes;
      const std::int64_t address = addresses_->release(event.block);
      write_event("free_requested", address, block.bytes, block.stream, &block);
      write_event("free_completed", address, block.bytes, block.stream, &block);
      addresses_->after_release();
    }
    out_.end_list();
  }

  // Returns the memory that the allocator of a GPU holds, or 0 if it is unknown.
  std::int64_t device_bytes() const {
    return std::max<std::int64_t>(0, gpu_->capacity - gpu_->context);
  }

  void write_out_of_memory(const MemoryHistory::Block& block) {
    const std::int64_t capacity = gpu_ ? device_bytes() : live_;
    out_.begin_dict();
    write("action", "oom");
    number("size", block.bytes);
    number("device_free", std::max<std::int64_t>(0, capacity - live_));
    number("stream", block.stream);
    number("time_us", static_cast<std::int64_t>(1e6 * now_));
    out_.key("frames");
    write_frames(&block);
    out_.end_dict();
  }

  // `block` is null for a segment.
  void write_event(const char* action, std::int64_t address, std::int64_t bytes,
                   std::int64_t stream, const MemoryHistory::Block* block) {
    out_.begin_dict();
    write("action", action);
    number("addr", address);
    number("size", bytes);
    number("stream", stream);
    number("time_us", static_cast<std::int64_t>(1e6 * now_));
    if (block != nullptr) write("category", name_of(block->component));
    out_.key("frames");
    write_frames(block);
    out_.end_dict();
  }

  // Writes the operator, then its layer and the modules that contain it, then the phase and the
  // component.
  void write_frames(const MemoryHistory::Block* block) {
    const auto key = block == nullptr ? std::tuple(-2, -2, -1, -1)
                                      : std::tuple(block->module, block->operation,
                                                   static_cast<int>(block->phase),
                                                   static_cast<int>(block->component));
    if (const auto known = frames_.find(key); known != frames_.end())
      return out_.recall(known->second);
    out_.begin_list();
    if (block != nullptr) {
      if (block->operation >= 0) write_frame(name(block->operation), "operator");
      std::string path = block->module >= 0 ? name(block->module) : "";
      while (!path.empty()) {
        write_frame(path, "layer");
        const std::size_t dot = path.rfind('.');
        path.resize(dot == path.npos ? 0 : dot);
      }
      write_frame(name_of(block->phase), "phase");
      write_frame(name_of(block->component), "component");
    }
    out_.end_list();
    frames_.emplace(key, out_.memoize());
  }

  void write_frame(std::string_view name, const char* kind) {
    out_.begin_dict();
    write("name", name);
    write("filename", kind);
    number("line", 0);
    out_.end_dict();
  }

  void write_segments() {
    out_.begin_list();
    for (const PlacedSegment& segment : addresses_->segments()) {
      std::int64_t allocated = 0, requested = 0;
      for (const PlacedBlock& block : segment.blocks) {
        allocated += block.block >= 0 ? block.bytes : 0;
        requested += block.requested;
      }
      out_.begin_dict();
      number("device", 0);
      number("address", segment.address);
      number("total_size", segment.bytes);
      number("allocated_size", allocated);
      number("active_size", allocated);
      number("requested_size", requested);
      number("stream", segment.stream);
      write("segment_type", segment.small ? "small" : "large");
      out_.key("segment_pool_id");
      out_.pair(0, 0);
      out_.key("is_expandable");
      out_.boolean(false);
      out_.key("frames");
      write_frames(nullptr);
      out_.key("blocks");
      out_.begin_list();
      for (const PlacedBlock& block : segment.blocks) write_block(block);
      out_.end_list();
      out_.end_dict();
    }
    out_.end_list();
  }

  void write_block(const PlacedBlock& block) {
    out_.begin_dict();
    number("address", block.address);
    number("size", block.bytes);
    number("requested_size", block.requested);
    write("state", block.block >= 0 ? "active_allocated" : "inactive");
    out_.key("frames");
    write_frames(block.block >= 0 ? &history_.blocks[static_cast<std::size_t>(block.block)]
                                  : nullptr);
    out_.end_dict();
  }

  void write(const char* key, std::string_view text) {
    out_.key(key);
    out_.text(text);
  }
  void number(const char* key, std::int64_t value) {
    out_.key(key);
    out_.integer(value);
  }
  const std::string& name(std::int32_t number) const {
    return history_.names[static_cast<std::size_t>(number)];
  }

  const MemoryHistory& history_;
  const std::optional<GpuMemory>& gpu_;
  PickleWriter out_;
  std::unique_ptr<AddressAssigner> addresses_;
  std::map<std::tuple<int, int, int, int>, std::uint32_t> frames_;
  double now_ = 0;
  std::int64_t live_ = 0;
};

}  // namespace

std::string to_snapshot(const Report& report) { return SnapshotWriter(report).write(); }

}  // namespace hasten::anatomy
