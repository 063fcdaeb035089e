#include "cli/parity_texts.h"

#include <array>

namespace tern::cli {
namespace {

constexpr std::array<std::string_view, 5> kPrompts{
    "The tern is a small seabird with a forked tail. It nests on beaches and gravel banks, flies thousands of miles "
    "every "
    "year between its breeding grounds and the sea ice, and feeds on fish that it catches by diving. A flock of terns",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n    a, b = 0, 1\n    for _ in range(n):\n   "
    "     a, b = "
    "b, a + b\n    return a\n\n\ndef factorial(n):\n    \"\"\"Return n!.\"\"\"\n",
    "The SELECT statement reads rows from a table. Its parts are:\n\n1. the list of columns\n2. the FROM clause, which "
    "names "
    "the table\n3. the WHERE clause,",
    "na\u00EFve caf\u00E9 \u2014 \u6771\u4EAC \U0001F642 \u0395\u03BB\u03BB\u03AC\u03B4\u03B1 12345.678, "
    "\u041C\u043E\u0441\u043A\u0432\u0430 and the "
    "rest of the world are places that",
    "<|im_start|>user\nWhat does \"tern\" mean?<|im_end|>\n<|im_start|>assistant\n",
};

constexpr std::array<std::string_view, 56> kTokenizerTexts{"",
                                                           " ",
                                                           "  ",
                                                           "   \t ",
                                                           "\n",
                                                           "\n\n",
                                                           "\r\n",
                                                           " \n ",
                                                           "\n \n",
                                                           "a\n\nb",
                                                           "Hello",
                                                           " Hello",
                                                           "Hello world",
                                                           "Hello  world",
                                                           "Hello   world  ",
                                                           "hello, world!",
                                                           "HELLO WORLD",
                                                           "camelCaseWord",
                                                           "snake_case_word",
                                                           "I'm you're he'll we've it's",
                                                           "I'M YOU'RE HE'LL WE'VE IT'S",
                                                           "don't 'quoted' text",
                                                           "1",
                                                           "12",
                                                           "123",
                                                           "1234",
                                                           "12345678901234567890",
                                                           "3.14159",
                                                           "1,000,000",
                                                           "2024-01-31T12:00:00Z",
                                                           "0x1F",
                                                           "a1b2c3",
                                                           "x = y + z;",
                                                           "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}",
                                                           "!!!???...",
                                                           "---===***",
                                                           "\"double\" and 'single'",
                                                           "http://example.com/path?q=1&r=2#frag",
                                                           "name@example.com",
                                                           "caf\u00E9",
                                                           "cafe\u0301",
                                                           "\u00C5ngstr\u00F6m na\u00EFve fa\u00E7ade",
                                                           "\u041F\u0440\u0438\u0432\u0435\u0442, \u043C\u0438\u0440",
                                                           "\u0393\u03B5\u03B9\u03AC \u03C3\u03BF\u03C5",
                                                           "\u4F60\u597D\uFF0C\u4E16\u754C",
                                                           "\u3053\u3093\u306B\u3061\u306F\u4E16\u754C",
                                                           "\uC548\uB155\uD558\uC138\uC694",
                                                           "\u0645\u0631\u062D\u0628\u0627",
                                                           "\u05E9\u05DC\u05D5\u05DD",
                                                           "\u0928\u092E\u0938\u094D\u0924\u0947",
                                                           "\u0E2A\u0E27\u0E31\u0E2A\u0E14\u0E35",
                                                           "\U0001F642\U0001F680",
                                                           "\U0001F468\u200D\U0001F469\u200D\U0001F467",
                                                           "\u00A0no-break\u3000wide\u2003blanks",
                                                           "<|im_start|>user\nhi<|im_end|>",
                                                           "</s><s><|endoftext|>"};

}  // namespace

std::span<const std::string_view> parity_prompts() noexcept {
  return kPrompts;
}
std::span<const std::string_view> parity_tokenizer_texts() noexcept {
  return kTokenizerTexts;
}

}  // namespace tern::cli
