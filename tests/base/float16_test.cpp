#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tern {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The value of f16 bits from the definition of the format.
double f16_value(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

bool is_f16_nan(uint16_t h) {
  return (h & 0x7fff) > 0x7c00;
}

TEST(Float16, EveryValueDecodesToItsDefinition) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = f16_to_f32(static_cast<uint16_t>(h));
    if (is_f16_nan(static_cast<uint16_t>(h))) {
      ASSERT_TRUE(std::isnan(f)) << h;
    } else if ((h & 0x7fff) == 0x7c00) {
      ASSERT_EQ(f, h & 0x8000 ? -kInfinity : kInfinity);
    } else {
      ASSERT_EQ(static_cast<double>(f), f16_value(static_cast<uint16_t>(h))) << h;
      ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << h;
    }
  }
}

TEST(Float16, EveryValueRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const uint16_t back = f32_to_f16(f16_to_f32(h));
    if (is_f16_nan(h)) {
      ASSERT_TRUE(is_f16_nan(back)) << h;
      ASSERT_EQ(back & 0x8000, h & 0x8000) << h;
    } else {
      ASSERT_EQ(back, h);
    }
  }
}

// Between any two neighbours: the middle goes to the even one, one f32 step to either side of it to the nearer one.
TEST(Float16, RoundsToNearestTiesToEven) {
  for (uint16_t low = 0; low < 0x7c00; ++low) {
    const auto high = static_cast<uint16_t>(low + 1);
    const double upper = high == 0x7c00 ? 65536.0 : f16_value(high);  // what infinity stands in for
    const auto middle = static_cast<float>((f16_value(low) + upper) / 2);
    const uint16_t even = low & 1 ? high : low;
    ASSERT_EQ(f32_to_f16(middle), even) << low;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << low;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, kInfinity)), high);
  }
}

TEST(Float16, SaturatesToInfinityAndFlushesTinyValuesToZero) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(3.4e38f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-kInfinity), 0xfc00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0x0000);
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(f32_to_f16(-1e-40f), 0x8000);
  EXPECT_EQ(f32_to_f16(-0.0f), 0x8000);
}

TEST(Bfloat16, EveryValueRoundTrips) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const uint16_t back = f32_to_bf16(bf16_to_f32(h));
    if ((h & 0x7fff) > 0x7f80) {
      ASSERT_GT(back & 0x7fff, 0x7f80) << h;
    } else {
      ASSERT_EQ(back, h);
    }
  }
}

TEST(Bfloat16, RoundsToNearestTiesToEven) {
  for (uint32_t low = 0; low < 0x7f80; ++low) {
    const uint32_t middle = low << 16 | 0x8000u;
    const auto bits = [](uint32_t x) { return f32_to_bf16(std::bit_cast<float>(x)); };
    ASSERT_EQ(bits(middle), low + (low & 1)) << low;
    ASSERT_EQ(bits(middle - 1), low);
    ASSERT_EQ(bits(middle + 1), low + 1);
    ASSERT_EQ(bits(middle | 0x80000000u), (low + (low & 1)) | 0x8000u);
  }
}

TEST(Bfloat16, KeepsNanWhosePayloadIsCutOff) {
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0xffffffffu)))));
}

}  // namespace
}  // namespace tern
