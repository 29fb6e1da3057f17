// File: track/event_record.h (internal)
// The records of a TensorBoard event file: the length, a checksum of the length, the bytes, and a
// checksum of the bytes.
//
//   file.append(event_record(event));
//   for (std::string_view rest = content; auto event = next_event_record(rest);) read(*event);
//
// Thread rule: pure functions. Source: TensorFlow's TFRecord; the checksum is CRC-32C, rotated and
// offset by a constant.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hasten {

std::string event_record(std::string_view bytes);
// Removes the first record from `rest` and returns its bytes. Returns nullopt at the end, and at a
// record that is damaged or incomplete, such as the last one of a run that was killed.
std::optional<std::string_view> next_event_record(std::string_view& rest);

}  // namespace hasten
