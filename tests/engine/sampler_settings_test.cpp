#include "engine/sampler_settings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/error.h"

namespace tern {
namespace {

TEST(SamplerSettings, TheDefaultsAreAllowedAndEveryNameIsUnique) {
  std::set<std::string_view> names;
  SamplerOptions options;
  for (const SamplerSetting& s : sampler_settings()) {
    EXPECT_NO_THROW(s.set(options, s.value(options))) << s.name();
    EXPECT_TRUE(names.insert(s.name()).second) << s.name();
    EXPECT_TRUE(names.insert(s.key).second || s.key == s.name()) << s.key;
  }
}

TEST(SamplerSettings, TheLimitsAreIncludedAndNothingBeyondThem) {
  SamplerOptions options;
  for (const SamplerSetting& s : sampler_settings()) {
    for (const double allowed : {s.low, s.high}) {
      s.set(options, allowed);
      EXPECT_NEAR(s.value(options), allowed, 1e-6) << s.name();
    }
    for (const double refused : {s.low - 1, s.high + 1, std::nan("")})
      EXPECT_THROW(s.set(options, refused), Error) << s.name() << " " << refused;
  }
}

TEST(SamplerSettings, CountsAreWholeNumbers) {
  SamplerOptions options;
  for (const SamplerSetting& s : sampler_settings()) {
    if (s.whole()) {
      EXPECT_THROW(s.set(options, 1.5), Error) << s.name();
    } else {
      EXPECT_NO_THROW(s.set(options, 0.5)) << s.name();
    }
  }
}

TEST(SamplerSettings, AFilesKeysAreFoundWhateverNumberTheyAre) {
  gguf::Metadata metadata;
  metadata.set_f32("general.sampling.temp", 0.5f);
  metadata.set_u32("general.sampling.top_k", 20);
  metadata.set_u32("general.sampling.mirostat", 2);
  metadata.set_string("general.name", "x");
  const FileSampling found = file_sampling(metadata);
  ASSERT_EQ(found.values.size(), 2u);
  EXPECT_EQ(found.values[0].first->name(), "temp");
  EXPECT_EQ(found.values[0].second, 0.5);
  EXPECT_EQ(found.values[1].first->name(), "top-k");
  EXPECT_EQ(found.values[1].second, 20);
  EXPECT_EQ(found.ignored, (std::vector<std::string>{"general.sampling.mirostat"}));
  metadata.set_string("general.sampling.min_p", "much");
  EXPECT_THROW(file_sampling(metadata), Error);
}

}  // namespace
}  // namespace tern
