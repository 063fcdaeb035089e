// Texts that `tern parity` compares two engines on.
#pragma once
#include <span>
#include <string_view>

namespace tern::cli {

/// Prompts whose distributions are compared: prose, code, a list, other scripts.
std::span<const std::string_view> parity_prompts() noexcept;

/// Short texts that tokenizers get wrong: blanks, numbers, contractions, scripts, emoji, ill-formed UTF-8, control
/// tokens.
std::span<const std::string_view> parity_tokenizer_texts() noexcept;

}  // namespace tern::cli
