#include "gguf/types.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace tern {
namespace {

using T = TensorType;

constexpr TypeInfo kTypes[] = {
    {T::F32, "F32", 1, 4},
    {T::F16, "F16", 1, 2},
    {T::Q4_0, "Q4_0", 32, 18},
    {T::Q4_1, "Q4_1", 32, 20},
    {T::Q5_0, "Q5_0", 32, 22},
    {T::Q5_1, "Q5_1", 32, 24},
    {T::Q8_0, "Q8_0", 32, 34},
    {T::Q8_1, "Q8_1", 32, 36},
    {T::Q2_K, "Q2_K", 256, 84},
    {T::Q3_K, "Q3_K", 256, 110},
    {T::Q4_K, "Q4_K", 256, 144},
    {T::Q5_K, "Q5_K", 256, 176},
    {T::Q6_K, "Q6_K", 256, 210},
    {T::Q8_K, "Q8_K", 256, 292},
    {T::IQ2_XXS, "IQ2_XXS", 256, 66},
    {T::IQ2_XS, "IQ2_XS", 256, 74},
    {T::IQ3_XXS, "IQ3_XXS", 256, 98},
    {T::IQ1_S, "IQ1_S", 256, 50},
    {T::IQ4_NL, "IQ4_NL", 32, 18},
    {T::IQ3_S, "IQ3_S", 256, 110},
    {T::IQ2_S, "IQ2_S", 256, 82},
    {T::IQ4_XS, "IQ4_XS", 256, 136},
    {T::I8, "I8", 1, 1},
    {T::I16, "I16", 1, 2},
    {T::I32, "I32", 1, 4},
    {T::I64, "I64", 1, 8},
    {T::F64, "F64", 1, 8},
    {T::IQ1_M, "IQ1_M", 256, 56},
    {T::BF16, "BF16", 1, 2},
    {T::TQ1_0, "TQ1_0", 256, 54},
    {T::TQ2_0, "TQ2_0", 256, 66},
    {T::I2_S, "I2_S", 128, 32, 32},
    {T::I8_S, "I8_S", 1, 1, 32},
    {T::TL1, "TL1", 4, 1, 32},
    {T::MXFP4, "MXFP4", 32, 17},
    {T::NVFP4, "NVFP4", 64, 36},
    {T::Q1_0, "Q1_0", 128, 18},
    {T::Q2_0, "Q2_0", 64, 18},
    {T::PQ2_0, "PQ2_0", 128, 34},
    {T::PTQ1_0, "PTQ1_0", 128, 28},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

std::span<const TypeInfo> type_table() noexcept {
  return kTypes;
}

const TypeInfo* find_type(uint32_t id) noexcept {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const TypeInfo& t) { return static_cast<uint32_t>(t.type) == id; });
  return row == std::end(kTypes) ? nullptr : row;
}

const TypeInfo& type_info(TensorType type) noexcept {
  const TypeInfo* row = find_type(static_cast<uint32_t>(type));
  CHECK(row != nullptr, "tensor type {} is not in the table", static_cast<uint32_t>(type));
  return *row;
}

const TypeInfo* find_type(std::string_view name) noexcept {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const TypeInfo& t) { return equal_ignoring_case(t.name, name); });
  return row == std::end(kTypes) ? nullptr : row;
}

}  // namespace tern
