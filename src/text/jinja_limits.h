// What a template may cost. A chat template is a program that came with somebody's file: it must not be able to hang
// the engine or eat its memory, so every loop, string and call of a rendering is paid for from these budgets.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tern::text::jinja {

struct Limits {
  std::size_t source = std::size_t{4} << 20;    // bytes of template text
  std::size_t memory = std::size_t{512} << 20;  // bytes of live strings plus every container made
  std::size_t output = std::size_t{64} << 20;   // bytes of rendered text
  std::uint64_t work = 40'000'000;  // units of about 50 ns: an expression evaluated, or 64 bytes of text touched
  int depth = 800;                  // nested evaluations: expressions, blocks, macro calls
};

/// Nesting allowed in a template's text, and in the values it prints, compares or receives.
inline constexpr int kMaxNesting = 200;

}  // namespace tern::text::jinja
