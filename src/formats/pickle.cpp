#include "formats/pickle.h"

#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten::pickle {
namespace {

// Values may take kMemory bytes, and kMemoryPerByte more for each byte of the file. A tensor of one
// number takes about 280 bytes in a file of torch.save, and 1900 bytes here.
constexpr std::size_t kMemory = std::size_t{12} << 20, kMemoryPerByte = 8;
// A vector that grows briefly holds its old and its new memory.
constexpr std::size_t kGrowth = 3;
// The lists of values hold pointers.
constexpr std::size_t kPointer = sizeof(void*);
constexpr std::size_t kMaxDimensions = 64;
// A module of an archive of LibTorch has a class of this name, or a name that begins with it.
constexpr std::string_view kLibTorchClass = "__torch__";

constexpr ElementType kTypes[] = {
    {"FloatStorage", "F32", 4},     {"DoubleStorage", "F64", 8},      {"HalfStorage", "F16", 2},
    {"BFloat16Storage", "BF16", 2}, {"LongStorage", "I64", 8},        {"IntStorage", "I32", 4},
    {"ShortStorage", "I16", 2},     {"CharStorage", "I8", 1},         {"ByteStorage", "U8", 1},
    {"BoolStorage", "BOOL", 1},     {"ComplexFloatStorage", "C64", 8}};

// The known names in a pickle. A value of Kind::name stores this number.
enum Name : std::int64_t { kOrderedDict, kTensor, kParameter, kStorageType, kModuleClass };

const ElementType* storage_type(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (name == type.storage) return &type;
  }
  return nullptr;
}

std::string printable(std::string_view text) {
  return repair_utf8(std::string(text.substr(0, 100)));
}

}  // namespace

// Executes the instructions.
class Program::Machine {
 public:
  Machine(Program& program, std::string_view pickle, const StorageSize& storage_size,
          std::size_t file_size)
      : program_(program), rest_(pickle), storage_size_(storage_size) {
    program_.memory_left_ = kMemoryPerByte * file_size + kMemory;
  }

  const Value* run() {
    if (byte() != 0x80 || byte() != 2) fail("a pickle of another protocol than 2");
    for (;;) {
      const unsigned char instruction = byte();
      if (instruction == '.') break;
      execute(instruction);
    }
    if (!rest_.empty()) fail("bytes after the end of the pickle");
    if (stack_.size() != 1 || !marks_.empty()) fail("values that belong to nothing");
    return stack_.front();
  }

 private:
  void execute(unsigned char instruction) {
    switch (instruction) {
      case 'N':
        return push_empty(Kind::none);
      case 0x88:
        return push_integer(Kind::boolean, 1);
      case 0x89:
        return push_integer(Kind::boolean, 0);
      case 'K':
        return push_integer(Kind::integer, byte());
      case 'M':
        return push_integer(Kind::integer, static_cast<std::int64_t>(number(2)));
      case 'J':
        return push_integer(Kind::integer, static_cast<std::int32_t>(number(4)));
      case 0x8a:
        return push_long();
      case 'G':
        return push_real();
      case 'X':
        return push_text(number(4));
      case '}':
        return push_empty(Kind::dict);
      case ']':
        return push_empty(Kind::list);
      case ')':
        return push_empty(Kind::tuple);
      case '(':
        return push_mark();
      case 't':
        return make_tuple(pop_to_mark());
      case 0x85:
        return make_tuple(pop(1));
      case 0x86:
        return make_tuple(pop(2));
      case 0x87:
        return make_tuple(pop(3));
      case 's':
        return add_items(Kind::dict, pop(2));
      case 'u':
        return add_items(Kind::dict, pop_to_mark());
      case 'a':
        return add_items(Kind::list, pop(1));
      case 'e':
        return add_items(Kind::list, pop_to_mark());
      case 'q':
        return memoize(byte());
      case 'r':
        return memoize(number(4));
      case 'h':
        return recall(byte());
      case 'j':
        return recall(number(4));
      case 'c':
        return push_name();
      case 'Q':
        return push_storage();
      case 'R':
        return call();
      case 0x81:
        return make_object();
      case 'b':
        return set_state();
      default:
        forbid(str("the instruction ", static_cast<int>(instruction)));
    }
  }

  [[noreturn]] void fail(const std::string& got) const { program_.fail_damaged(got); }
  [[noreturn]] void forbid(const std::string& got) const {
    throw DataError(
        "pickle.forbidden",
        {.what = program_.file_,
         .got = got,
         .expected = "tensors, numbers, texts, lists and dictionaries",
         .hint = "hasten executes nothing that a file names. If you trust the file, load "
                 "it in Python and save the tensors with safetensors"});
  }

  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) fail("a pickle that is cut off");
    const std::string_view read = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return read;
  }
  unsigned char byte() { return static_cast<unsigned char>(bytes(1).front()); }
  std::uint64_t number(std::size_t count) {
    const std::string_view read = bytes(count);
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(read[i]);
    return value;
  }
  std::string_view line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) fail("a pickle that is cut off");
    const std::string_view read = bytes(end);
    bytes(1);
    return read;
  }

  void reserve_memory(std::size_t memory) {
    if (memory > program_.memory_left_) fail("more values than a file of this size may have");
    program_.memory_left_ -= memory;
  }

  Value& push(Kind kind) {
    reserve_memory(sizeof(Value) + kGrowth * kPointer);  // the stack grows with it
    Value& value = program_.values_.emplace_back();
    value.kind = kind;
    stack_.push_back(&value);
    return value;
  }
  void push_empty(Kind kind) { static_cast<void>(push(kind)); }
  void push_integer(Kind kind, std::int64_t integer) { push(kind).integer = integer; }
  void push_long() {
    const std::size_t size = byte();
    if (size > 8) fail("a whole number of more than 64 bits");
    std::uint64_t value = number(size);
    // The highest bit is the sign.
    if (size > 0 && size < 8 && (value >> (8 * size - 1) & 1) != 0) value |= ~0ULL << (8 * size);
    push_integer(Kind::integer, static_cast<std::int64_t>(value));
  }
  void push_real() {
    std::uint64_t bits = 0;
    for (const char each : bytes(8)) bits = bits << 8 | static_cast<unsigned char>(each);
    push(Kind::real).real = std::bit_cast<double>(bits);
  }
  void push_text(std::size_t size) {
    const std::string_view text = bytes(size);
    if (!is_utf8(text)) fail("a text that is not UTF-8");
    push(Kind::text).text = text;
  }

  void push_mark() {
    reserve_memory(kGrowth * sizeof(std::size_t));
    marks_.push_back(stack_.size());
  }
  // Returns the number of values below the top mark, or 0 without a mark. These cannot be popped.
  std::size_t mark_position() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<Value*> pop(std::size_t count) {
    if (stack_.size() - mark_position() < count) fail("an instruction without its values");
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<Value*> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    return values;
  }
  std::vector<Value*> pop_to_mark() {
    if (marks_.empty()) fail("an instruction without its mark");
    const std::size_t count = stack_.size() - marks_.back();
    std::vector<Value*> values = pop(count);
    marks_.pop_back();
    return values;
  }
  Value& top() {
    if (stack_.size() == mark_position()) fail("an instruction without its values");
    return *stack_.back();
  }

  void append(Value& to, const std::vector<Value*>& values) {
    reserve_memory(kGrowth * kPointer * values.size());
    to.items.insert(to.items.end(), values.begin(), values.end());
  }
  void make_tuple(const std::vector<Value*>& values) { append(push(Kind::tuple), values); }
  void add_items(Kind kind, const std::vector<Value*>& values) {
    Value& to = top();
    if (to.kind != kind)
      fail("an item that is added to something else than a list or a dictionary");
    if (kind == Kind::dict) check_keys(values);
    append(to, values);
  }
  void check_keys(const std::vector<Value*>& values) const {
    if (values.size() % 2 != 0) fail("a dictionary with a key and no value");
    for (std::size_t i = 0; i < values.size(); i += 2) {
      if (values[i]->kind != Kind::text && values[i]->kind != Kind::integer)
        fail("a dictionary whose keys are neither texts nor whole numbers");
    }
  }

  void memoize(std::uint64_t place) {
    // PyTorch's writers number the remembered values in order, so the memo has no gaps.
    if (place > memo_.size()) fail("a memo with gaps");
    Value& value = top();
    if (place == memo_.size()) {
      reserve_memory(kGrowth * kPointer);
      memo_.push_back(&value);
    } else {
      memo_[place] = &value;
    }
  }
  void recall(std::uint64_t place) {
    if (place >= memo_.size()) fail("a reference to nothing");
    reserve_memory(kGrowth * kPointer);
    stack_.push_back(memo_[place]);
  }

  void push_name() {
    const std::string_view module = line(), name = line();
    if (module == "collections" && name == "OrderedDict") return push_name(kOrderedDict);
    if (module == "torch._utils" && name == "_rebuild_tensor_v2") return push_name(kTensor);
    if (module == "torch._utils" && name == "_rebuild_parameter") return push_name(kParameter);
    if (module == kLibTorchClass || starts_with(std::string(module), "__torch__."))
      return push_name(kModuleClass);
    const ElementType* const type = module == "torch" ? storage_type(name) : nullptr;
    if (type == nullptr) forbid(str("the name ", printable(module), '.', printable(name)));
    push_name(kStorageType);
    stack_.back()->type = type;
  }
  void push_name(Name name) { push_integer(Kind::name, name); }
  void require_name(const Value& value, Name name, const char* what) const {
    if (value.kind != Kind::name || value.integer != name) fail(what);
  }

  // ('storage', TYPE, KEY, DEVICE, ELEMENTS)
  void push_storage() {
    const Value& id = *pop(1).front();
    const char* const wrong = "a storage without type, key and size";
    if (id.kind != Kind::tuple || id.items.size() != 5 || id.items[0]->text != "storage" ||
        id.items[2]->kind != Kind::text || id.items[3]->kind != Kind::text ||
        id.items[4]->kind != Kind::integer)
      fail(wrong);
    require_name(*id.items[1], kStorageType, wrong);
    const ElementType& type = *id.items[1]->type;
    const std::size_t bytes = storage_size_(id.items[2]->text);
    const std::int64_t elements = id.items[4]->integer;
    if (elements < 0 || bytes % type.bytes != 0 ||
        static_cast<std::uint64_t>(elements) != bytes / type.bytes)
      fail(str("a storage of ", bytes, " bytes for ", elements, " elements of ", type.text));
    Value& storage = push(Kind::storage);
    storage.type = &type;
    storage.text = id.items[2]->text;
    storage.integer = elements;
  }

  void call() {
    const std::vector<Value*> call = pop(2);
    const Value &name = *call[0], &arguments = *call[1];
    if (name.kind != Kind::name || arguments.kind != Kind::tuple) forbid("the call of a value");
    switch (name.integer) {
      case kOrderedDict:
        if (!arguments.items.empty()) fail("an OrderedDict with arguments");
        push(Kind::dict);
        return;
      case kTensor:
        return make_tensor(arguments.items);
      case kParameter:
        return make_parameter(arguments.items);
      default:
        forbid("the call of a class");
    }
  }

  // (STORAGE, OFFSET, SIZES, STRIDES, REQUIRES_GRAD, HOOKS)
  void make_tensor(const std::vector<const Value*>& arguments) {
    if (arguments.size() == 7 && arguments[6]->kind != Kind::none) forbid("a tensor with metadata");
    const bool is_plain = (arguments.size() == 6 || arguments.size() == 7) &&
                          arguments[0]->kind == Kind::storage &&
                          arguments[1]->kind == Kind::integer &&
                          arguments[2]->kind == Kind::tuple && arguments[3]->kind == Kind::tuple;
    if (!is_plain) fail("a tensor without storage, offset, sizes and strides");
    check_hooks(*arguments[5]);
    check_bounds(*arguments[0], arguments[1]->integer, arguments[2]->items, arguments[3]->items);
    Value& tensor = push(Kind::tensor);
    tensor.type = arguments[0]->type;
    tensor.text = arguments[0]->text;
    tensor.integer = arguments[1]->integer;
    reserve_memory(2 * kPointer * (arguments[2]->items.size() + arguments[3]->items.size()));
    tensor.items = arguments[2]->items;
    tensor.items.insert(tensor.items.end(), arguments[3]->items.begin(), arguments[3]->items.end());
  }

  void check_hooks(const Value& hooks) const {
    const bool is_empty =
        hooks.kind == Kind::none || (hooks.kind == Kind::dict && hooks.items.empty());
    if (!is_empty) forbid("a tensor with hooks");
  }

  // Checks that all elements lie inside the storage and that the tensor has no more elements than
  // the storage, so that a small file cannot become a large tensor.
  void check_bounds(const Value& storage, std::int64_t offset,
                    const std::vector<const Value*>& sizes,
                    const std::vector<const Value*>& strides) const {
    if (sizes.size() != strides.size() || sizes.size() > kMaxDimensions || offset < 0)
      fail("a tensor with wrong sizes or strides");
    const auto bad_numbers = [](const std::vector<const Value*>& numbers) {
      for (const Value* each : numbers) {
        if (each->kind != Kind::integer || each->integer < 0) return true;
      }
      return false;
    };
    if (bad_numbers(sizes) || bad_numbers(strides)) fail("a tensor with wrong sizes or strides");
    // The index of the last element, and the number of elements.
    std::int64_t last = offset, elements = 1;
    bool overflows = false;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const std::int64_t size = sizes[d]->integer;
      std::int64_t length = 0;
      overflows |= __builtin_mul_overflow(elements, size, &elements);
      if (size > 0) overflows |= __builtin_mul_overflow(size - 1, strides[d]->integer, &length);
      overflows |= __builtin_add_overflow(last, length, &last);
    }
    if (overflows) fail("a tensor with sizes that overflow");
    if (elements > 0 ? last >= storage.integer : offset > storage.integer)
      fail("a tensor that reaches past the end of its storage");
    if (elements > storage.integer)
      fail(str("a tensor of ", elements, " elements in a storage of ", storage.integer));
  }

  // (TENSOR, REQUIRES_GRAD, HOOKS)
  void make_parameter(const std::vector<const Value*>& arguments) {
    if (arguments.size() != 3 || arguments[0]->kind != Kind::tensor)
      fail("a parameter without a tensor");
    check_hooks(*arguments[2]);
    const Value& tensor = *arguments[0];
    reserve_memory(kPointer * tensor.items.size());
    Value& copy = push(Kind::tensor);
    copy = tensor;
  }

  void make_object() {
    const std::vector<Value*> made = pop(2);
    if (made[0]->kind != Kind::name || made[0]->integer != kModuleClass ||
        made[1]->kind != Kind::tuple || !made[1]->items.empty())
      forbid("a new object of a class");
    push(Kind::object);
  }

  // Sets the attributes of an object of LibTorch. An OrderedDict may have attributes in addition to
  // its items: PyTorch stores the versions of modules there, which hasten does not use.
  void set_state() {
    const Value& state = *pop(1).front();
    Value& to = top();
    if (state.kind != Kind::dict) fail("a state that is not a dictionary");
    if (to.kind == Kind::dict) return;
    if (to.kind != Kind::object || !to.items.empty()) forbid("the state of a value");
    reserve_memory(2 * kPointer * state.items.size());
    to.items = state.items;
  }

  Program& program_;
  std::string_view rest_;
  const StorageSize& storage_size_;
  std::vector<Value*> stack_, memo_;
  std::vector<std::size_t> marks_;
};

Program::Program(std::string_view pickle, std::string file, const StorageSize& storage_size,
                 std::size_t file_size)
    : file_(std::move(file)) {
  root_ = Machine(*this, pickle, storage_size, file_size).run();
}

void Program::for_each_member(
    const Value& dict,
    const std::function<void(const std::string& key, const Value&)>& visit) const {
  std::set<std::string> keys;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& key = *dict.items[i];
    const std::string text = key.kind == Kind::text ? std::string(key.text) : str(key.integer);
    if (!keys.insert(text).second) fail_damaged(str("two values for the key ", printable(text)));
    visit(text, *dict.items[i + 1]);
  }
}

void Program::fail_damaged(const std::string& got) const {
  throw DataError("pickle.damaged", {.what = file_,
                                     .got = got,
                                     .expected = "a file of torch.save or torch::save",
                                     .hint = "save or fetch the file again"});
}

std::vector<std::int64_t> sizes_of(const Value& tensor) {
  std::vector<std::int64_t> sizes;
  for (std::size_t i = 0; i < tensor.items.size() / 2; ++i)
    sizes.push_back(tensor.items[i]->integer);
  return sizes;
}

std::vector<std::int64_t> strides_of(const Value& tensor) {
  std::vector<std::int64_t> strides;
  for (std::size_t i = tensor.items.size() / 2; i < tensor.items.size(); ++i)
    strides.push_back(tensor.items[i]->integer);
  return strides;
}

}  // namespace hasten::pickle
