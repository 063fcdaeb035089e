// Asserting how something is refused: the kind of failure and what its message says.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/raw_file.h"

namespace tern::gguf::testing {

template <typename Action>
void expect_refused(Action action, ErrorCode code, std::string_view text) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.code()), static_cast<int>(code)) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(text), std::string_view::npos)
        << "message: " << e.what() << "\n wanted: " << text;
    return;
  }
  FAIL() << "accepted, but should be refused with: " << text;
}

inline Parsed parse_bytes(std::string_view bytes) {
  return parse(as_bytes(bytes), "m.gguf");
}

inline void expect_bad(std::string_view bytes, std::string_view text, ErrorCode code = ErrorCode::kBadFile) {
  expect_refused([&] { parse_bytes(bytes); }, code, text);
}
inline void expect_bad(const RawFile& file, std::string_view text, ErrorCode code = ErrorCode::kBadFile) {
  expect_bad(file.build(), text, code);
}

}  // namespace tern::gguf::testing
