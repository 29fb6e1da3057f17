// File: track/event_fields.h (internal)
// The numbers of the fields in TensorBoard's messages that hasten writes and reads: event.proto,
// summary.proto, tensor.proto, and plugin_data.proto of the HParams plugin.
#pragma once

namespace hasten::event_fields {

// Event
inline constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
// SessionLog
inline constexpr int kStatus = 1, kStart = 1;
// Summary, and its Value
inline constexpr int kValue = 1;
inline constexpr int kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8,
                     kMetadata = 9;
// SummaryMetadata, and its PluginData
inline constexpr int kPluginData = 1;
inline constexpr int kPluginName = 1, kPluginContent = 2;
// TensorProto, and its TensorShapeProto
inline constexpr int kType = 1, kShape = 2, kFloats = 5, kTexts = 8;
inline constexpr int kTensorContent = 4;
inline constexpr int kDimension = 2, kDimensionSize = 1;
inline constexpr int kTypeFloat = 1, kTypeText = 7;

}  // namespace hasten::event_fields
