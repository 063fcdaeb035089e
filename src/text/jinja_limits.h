// What a template may cost. A chat template is a program that came with somebody's file: it must not be able to hang
// the engine or eat its memory, so every loop, string and call of a rendering is paid for from these budgets. Together
// they keep the worst rendering that is known (reversing long texts of two-byte characters, over and over: 20 ns a
// byte) under two seconds of an idle core; an ordinary template takes some thousand units, and its longest
// conversations a few times their bytes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tern::text::jinja {

struct Limits {
  std::size_t source = std::size_t{4} << 20;   // bytes of template text
  std::size_t memory = std::size_t{64} << 20;  // bytes of live strings plus every container made
  std::size_t output = std::size_t{16} << 20;  // bytes of rendered text
  std::uint64_t work = 10'000'000;  // units: an expression evaluated (about 50 ns), or kTextUnit bytes touched
  int depth = 800;                  // nested evaluations: expressions, blocks, macro calls
};

inline constexpr std::size_t kTextUnit = 8;

/// Nesting allowed in a template's text, and in the values it prints, compares or receives.
inline constexpr int kMaxNesting = 200;

}  // namespace tern::text::jinja
