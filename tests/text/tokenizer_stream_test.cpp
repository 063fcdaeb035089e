#include <gtest/gtest.h>

#include "text/detokenizer.h"
#include "text/tokenizer_vocabulary.h"

namespace tern::text {
namespace {

class StreamTest : public testing::Test {
 protected:
  Tokenizer tokenizer = Tokenizer::from_metadata(byte_level({}, {{"<|im_end|>", TokenType::kControl}}));
  StreamDecoder stream{tokenizer};
};

TEST_F(StreamTest, HoldsACharacterBackUntilItsLastByte) {
  EXPECT_EQ(stream.push('a'), "a");
  EXPECT_EQ(stream.push(0xF0), "");
  EXPECT_EQ(stream.push(0x9F), "");
  EXPECT_EQ(stream.push(0x98), "");
  EXPECT_EQ(stream.push(0x80), "\U0001F600");
  EXPECT_EQ(stream.finish(), "");
}

TEST_F(StreamTest, ReplacesBytesAsSoonAsTheyCannotBecomeACharacter) {
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push('x'), "\uFFFDx");
  EXPECT_EQ(stream.push(0xFF), "\uFFFD");
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0xC3), "\uFFFD");
  EXPECT_EQ(stream.push(0xA9), "\u00E9");
}

TEST_F(StreamTest, FlushesTheRestAtTheEndAndStartsAnew) {
  EXPECT_EQ(stream.push(0xE2), "");
  EXPECT_EQ(stream.push(0x82), "");
  EXPECT_EQ(stream.finish(), "\uFFFD");
  EXPECT_EQ(stream.push(0xAC), "\uFFFD");  // not the third byte of what was flushed
}

TEST_F(StreamTest, ShowsControlTokensOnlyWhenAskedTo) {
  EXPECT_EQ(stream.push(256), "");
  StreamDecoder loud(tokenizer, /*special=*/true);
  EXPECT_EQ(loud.push(256), "<|im_end|>");
}

}  // namespace
}  // namespace tern::text
