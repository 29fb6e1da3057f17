// File: track/png.h (internal)
// Writes an image as PNG without compression: its pixels are stored blocks of a zlib stream.
//
//   const std::string bytes = png_of({.height = 2, .width = 2, .channels = 1, .pixels = pixels});
//
// Throws UsageError "track.image" if the number of bytes or channels does not fit. Thread rule: a
// pure function. Source: the PNG specification (ISO/IEC 15948), RFC 1950 and RFC 1951.
#pragma once

#include <string>

#include "hasten/track/tracker.h"

namespace hasten {

std::string png_of(const TrackedImage& image);

}  // namespace hasten
