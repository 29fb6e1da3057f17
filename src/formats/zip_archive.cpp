#include "formats/zip_archive.h"

#include <algorithm>

#include "base/crc32.h"
#include "base/utf8.h"
#include "hasten/base/error.h"
#include "hasten/base/text.h"

namespace hasten {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50,
                        kLocatorSignature = 0x07064b50, kEntrySignature = 0x02014b50,
                        kHeaderSignature = 0x04034b50;
constexpr std::size_t kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20, kEntrySize = 46,
                      kHeaderSize = 30;
// A size or an offset with this value is stored in the entry's 64-bit extension.
constexpr std::uint64_t kIn64BitExtension = 0xFFFFFFFF;
constexpr std::uint64_t kEncryptedFlag = 1, kStored = 0, kExtensionId = 1;

// True for a relative path without "", ".", ".." and backslashes.
bool is_plain_name(const std::string& name) {
  if (!is_utf8(name) || name.find('\\') != std::string::npos ||
      name.find('\0') != std::string::npos)
    return false;
  const std::vector<std::string> parts = split(name, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.empty() || part == "." || part == "..";
  });
}

}  // namespace

// The position and size of the list of all entries, and their number.
struct ZipArchive::Directory {
  std::uint64_t begin = 0, size = 0, entries = 0;
};

ZipArchive::ZipArchive(const std::filesystem::path& path, const ArchiveKind& kind)
    : kind_(kind), file_(path.string()), mapped_(path) {
  const Directory directory = find_directory();
  std::size_t at = directory.begin;
  const std::size_t end = directory.begin + directory.size;
  for (std::uint64_t entry = 0; entry < directory.entries; ++entry) read_entry(at, end);
  if (at != end) fail("the list of records has a wrong size");
  if (records_.empty()) fail("the archive is empty");
  check_overlaps();
  strip_common_folder();
}

std::string_view ZipArchive::record(const std::string& name) const {
  const auto found = records_.find(name);
  if (found == records_.end()) fail("the record " + name + " is missing");
  if (found->second.is_compressed) fail_compressed(name);
  const std::string_view bytes = mapped_.bytes().substr(found->second.begin, found->second.size);
  if (crc32(bytes) != found->second.checksum)
    fail("the bytes of record " + name + " do not match their checksum");
  return bytes;
}

char* ZipArchive::mutable_record(const std::string& name) const {
  return mapped_.data() + (record(name).data() - mapped_.data());
}

ZipArchive::Directory ZipArchive::find_directory() const {
  const std::size_t size = mapped_.size();
  if (size < kEndSize || number(0, 4) != kHeaderSignature) fail("the file is not a zip archive");
  // A comment of at most 65535 bytes may follow the end record.
  const std::size_t first = size - std::min<std::size_t>(size, kEndSize + 0xFFFF);
  for (std::size_t at = size - kEndSize + 1; at-- > first;) {
    if (number(at, 4) != kEndSignature || at + kEndSize + number(at + 20, 2) != size) continue;
    Directory found{number(at + 16, 4), number(at + 12, 4), number(at + 10, 2)};
    if (at >= kLocatorSize && number(at - kLocatorSize, 4) == kLocatorSignature) {
      const std::uint64_t end64 = number(at - kLocatorSize + 8, 8);
      if (size < kEnd64Size || end64 > size - kEnd64Size || number(end64, 4) != kEnd64Signature)
        fail("the 64-bit end record is damaged");
      found = {number(end64 + 48, 8), number(end64 + 40, 8), number(end64 + 32, 8)};
    }
    if (found.begin > at || found.size > at - found.begin)
      fail("the list of records lies outside of the file");
    return found;
  }
  fail("the file has no list of records; it is truncated");
}

void ZipArchive::read_entry(std::size_t& at, std::size_t end) {
  if (end - at < kEntrySize || number(at, 4) != kEntrySignature)
    fail("the list of records is damaged");
  const std::uint64_t name_size = number(at + 28, 2), extra_size = number(at + 30, 2),
                      comment_size = number(at + 32, 2);
  if (end - at < kEntrySize + name_size + extra_size + comment_size)
    fail("the list of records is damaged");
  const std::string name(mapped_.bytes().substr(at + kEntrySize, name_size));
  std::uint64_t packed = number(at + 20, 4), size = number(at + 24, 4), header = number(at + 42, 4);
  const std::size_t extra_end = at + kEntrySize + name_size + extra_size;
  for (std::size_t extra = at + kEntrySize + name_size; extra + 4 <= extra_end;) {
    const std::size_t field_end = extra + 4 + number(extra + 2, 2);
    if (field_end > extra_end) fail("the list of records is damaged");
    if (number(extra, 2) == kExtensionId) {
      std::size_t field = extra + 4;
      for (std::uint64_t* value : {&size, &packed, &header}) {
        if (*value != kIn64BitExtension) continue;
        if (field + 8 > field_end) fail("the list of records is damaged");
        *value = number(field, 8);
        field += 8;
      }
    }
    extra = field_end;
  }
  const std::uint64_t flags = number(at + 8, 2), method = number(at + 10, 2);
  const auto checksum = static_cast<std::uint32_t>(number(at + 16, 4));
  at = extra_end + comment_size;
  if (ends_with(name, "/") && size == 0) return;  // An empty folder.
  if (!is_plain_name(name)) fail("a record has a name that is not allowed", repair_utf8(name));
  if (flags & kEncryptedFlag) fail("the record " + name + " is encrypted");
  const bool is_compressed = method != kStored || packed != size;
  if (is_compressed && !kind_.may_compress) fail_compressed(name);
  Record record = locate(name, header, packed, end);
  record.is_compressed = is_compressed;
  record.checksum = checksum;
  if (!records_.emplace(name, record).second) fail("the record " + name + " occurs twice");
  names_.push_back(name);
}

// Returns the bytes of a record, which follow its own header.
ZipArchive::Record ZipArchive::locate(const std::string& name, std::uint64_t header,
                                      std::uint64_t size, std::size_t end) const {
  const auto past_the_end = [&] {
    fail("the record " + name + " reaches past the end of the file");
  };
  if (header > end || end - header < kHeaderSize) past_the_end();
  if (number(header, 4) != kHeaderSignature) fail("the header of record " + name + " is damaged");
  const std::uint64_t begin =
      header + kHeaderSize + number(header + 26, 2) + number(header + 28, 2);
  if (begin > end || size > end - begin) past_the_end();
  if (mapped_.bytes().substr(header + kHeaderSize, number(header + 26, 2)) != name)
    fail("the record " + name + " has another name in its header");
  return {static_cast<std::size_t>(begin), static_cast<std::size_t>(size)};
}

void ZipArchive::strip_common_folder() {
  folder_ = names_.front().substr(0, names_.front().find('/'));
  std::map<std::string, Record> stripped;
  for (std::string& name : names_) {
    if (!starts_with(name, folder_ + "/"))
      fail("the records are not below one folder", folder_ + "/, " + name);
    const Record record = records_.at(name);
    name = name.substr(folder_.size() + 1);
    stripped.emplace(name, record);
  }
  records_ = std::move(stripped);
}

void ZipArchive::check_overlaps() const {
  std::vector<std::pair<std::size_t, std::size_t>> ranges;
  for (const auto& [name, record] : records_)
    ranges.emplace_back(record.begin, record.begin + record.size);
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) fail("two records share bytes");
}

// Reads a little-endian number.
std::uint64_t ZipArchive::number(std::size_t at, int bytes) const {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;)
    value =
        value << 8 | static_cast<unsigned char>(mapped_.data()[at + static_cast<std::size_t>(i)]);
  return value;
}

void ZipArchive::fail_compressed(const std::string& name) const {
  throw DataError(kind_.code,
                  {.what = file_ + ": the record " + name + " is compressed",
                   .expected = str("a file as ", kind_.writer, " writes it, without compression"),
                   .hint = "load the file in Python and save it again"});
}

void ZipArchive::fail(const std::string& what, const std::string& got) const {
  throw DataError(kind_.code,
                  {.what = file_ + ": " + what,
                   .got = got,
                   .hint = str("expected a file of ", kind_.writer, "; fetch or save it again")});
}

}  // namespace hasten
