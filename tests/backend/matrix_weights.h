// Random tensors of every decodable format, with scales of ordinary size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gguf/types.h"

namespace tern::test {

enum class Codes { kAny, kTernaryOnly };  // kTernaryOnly: the 2-bit formats without their code 3 (+2)

/// A whole tensor as a file has it, tail included: random bits, scales overwritten by values around `size`.
std::vector<std::byte> random_tensor(TensorType type, int64_t rows, int64_t cols, Codes codes, std::mt19937& random);

}  // namespace tern::test
