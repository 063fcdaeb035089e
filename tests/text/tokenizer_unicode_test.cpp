#include <gtest/gtest.h>

#include "text/unicode.h"

namespace tern::text {
namespace {

std::string replaced(std::string_view text) {
  std::string storage;
  return std::string(valid_utf8(text, storage));
}

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(to_nfc(text, storage));
}

TEST(Utf8, LeavesWellFormedTextWhereItIs) {
  const std::string text = "a\xC3\xA9\xE5\xAD\x97\xF0\x9F\x98\x80\0z";
  std::string storage;
  EXPECT_EQ(valid_utf8(text, storage).data(), text.data());
}

TEST(Utf8, ReplacesEachMaximalIllFormedPart) {
  EXPECT_EQ(replaced("a\xFF"
                     "b"),
            "a\uFFFDb");
  EXPECT_EQ(replaced("\xE2\x82"), "\uFFFD");  // truncated: one error
  EXPECT_EQ(replaced("\xE2\x82"
                     "A"),
            "\uFFFDA");                                                 // the letter survives
  EXPECT_EQ(replaced("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(replaced("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replaced("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(replaced("\xF0\x9F\x98"
                     "\xE5\xAD\x97"),
            "\uFFFD\u5B57");
}

TEST(Utf8, EncodesEveryLengthBackAndForth) {
  for (const char32_t c : {0x0u, 0x7Fu, 0x80u, 0x7FFu, 0x800u, 0xD7FFu, 0xE000u, 0xFFFFu, 0x10000u, 0x10FFFFu}) {
    std::string bytes;
    append_utf8(bytes, c);
    const Utf8Sequence s = decode_utf8(bytes);
    EXPECT_EQ(s.kind, Utf8Sequence::Kind::kValid);
    EXPECT_EQ(s.length, bytes.size());
    EXPECT_EQ(s.code_point, c);
  }
}

TEST(Nfc, ComposesReordersAndLeavesCompatibilityAlone) {
  EXPECT_EQ(nfc("e\u0301"), "\u00E9");
  EXPECT_EQ(nfc("a\u0302\u0323"), "\u1EAD");  // marks out of order
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\u212B"), "\u00C5");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(nfc("\uFB01"), "\uFB01");
  EXPECT_EQ(nfc(std::string_view("\0e\u0301\0", 5)), std::string_view("\0\u00E9\0", 4));
}

TEST(Nfc, OrdersAMegabyteOfMarksInTime) {
  std::string text = "a";
  for (int i = 0; i < 250'000; ++i) text += "\u0301\u0316";  // classes 230 and 220, every pair reversed
  const std::string out = nfc(text);
  EXPECT_EQ(out.size(), text.size() - 1);  // the first acute joins the letter: 1 + 2 bytes become 2
  EXPECT_TRUE(out.starts_with("\u00E1\u0316\u0316"));
  EXPECT_TRUE(out.ends_with("\u0301\u0301"));
}

TEST(ByteAlphabet, SpellsEveryByteAndReadsItBack) {
  std::string all, spelled;
  for (int b = 0; b < 256; ++b) {
    all += static_cast<char>(b);
    append_utf8(spelled, byte_to_code_point(static_cast<uint8_t>(b)));
  }
  EXPECT_EQ(bytes_of_token(spelled), all);
  EXPECT_EQ(byte_to_code_point(' '), U'\u0120');
  EXPECT_EQ(byte_to_code_point('\n'), U'\u010A');
  EXPECT_EQ(byte_to_code_point(0xAD), U'\u0143');
  EXPECT_EQ(bytes_of_token("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_token("\u5B57"), std::nullopt);
  EXPECT_EQ(bytes_of_token("\xFF"), std::nullopt);
}

}  // namespace
}  // namespace tern::text
