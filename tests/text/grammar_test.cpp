#include "text/grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"
#include "text/json_schema.h"
#include "text/tokenizer.h"
#include "text/tokenizer_vocabulary.h"

namespace tern::text {
namespace {

using Json = nlohmann::ordered_json;
using GrammarPtr = std::shared_ptr<const Grammar>;

// All bytes, then tokens that cut JSON, words and characters of several bytes at awkward places.
const std::vector<std::string> kPieces = {"{\"",  "\":",   "\": ", "\", \"", "\"}",    "}}",   "[[",       "]}",
                                          "],",   "null",  "true", "false",  "name",   "na",   "me\"",     "12",
                                          "0.",   "-1",    "1e5",  "e+",     "\\u00",  "d83d", "\x9F\x98", "é",
                                          "日本", "a\xC3", " \n",  "\n  ",   "abcabc", "ab",   "Nf3 ",     "e4"};

gguf::Metadata test_vocabulary() {
  std::vector<std::pair<std::string, TokenType>> others;
  for (const std::string& piece : kPieces) others.push_back({spelled(piece), TokenType::kNormal});
  others.push_back({"<|end|>", TokenType::kControl});
  others.push_back({"<|other|>", TokenType::kControl});
  gguf::Metadata out = byte_level({}, others);
  out.set_u32("tokenizer.ggml.eos_token_id", static_cast<uint32_t>(256 + kPieces.size()));
  return out;
}

const Tokenizer& vocabulary() {
  static const Tokenizer tokenizer = Tokenizer::from_metadata(test_vocabulary());
  return tokenizer;
}
std::shared_ptr<const TokenTable> table() {
  static const auto shared = std::make_shared<const TokenTable>(vocabulary());
  return shared;
}
int32_t end_token() {
  return vocabulary().eos().value();
}

GrammarState state_of(const GrammarPtr& grammar) {
  return {grammar, table()};
}

/// By single bytes, the slow way: whether `text` is a sentence, and whether it may become one.
struct Reading {
  bool possible = true, whole = false;
};
Reading read(const GrammarPtr& grammar, std::string_view text) {
  GrammarState state = state_of(grammar);
  for (const char c : text) {
    const int32_t token = *vocabulary().find(spelled({&c, 1}));
    if (!state.allows(token)) return {false, false};
    state.accept(token);
  }
  return {true, state.complete()};
}
bool matches(const GrammarPtr& grammar, std::string_view text) {
  return read(grammar, text).whole;
}

std::vector<bool> allowed(const GrammarState& state) {
  std::vector<float> logits(static_cast<size_t>(vocabulary().n_vocab()), 0.0f);
  state.mask(logits);
  std::vector<bool> out;
  for (const float x : logits) out.push_back(std::isfinite(x));
  return out;
}

/// A text made of tokens that the mask allows; nothing when it did not end in time.
std::optional<std::string> random_text(const GrammarPtr& grammar, std::mt19937& random, int max_tokens) {
  GrammarState state = state_of(grammar);
  std::string text;
  for (int i = 0; i < max_tokens && !state.finished(); ++i) {
    const std::vector<bool> mask = allowed(state);
    std::vector<int32_t> tokens;
    for (size_t t = 0; t < mask.size(); ++t)
      if (mask[t]) tokens.push_back(static_cast<int32_t>(t));
    EXPECT_FALSE(tokens.empty()) << "nothing may follow " << text;
    if (tokens.empty()) return std::nullopt;
    if (mask[static_cast<size_t>(end_token())] && random() % 4 == 0) return text;
    const int32_t token = tokens[random() % tokens.size()];
    state.accept(token);
    if (token == end_token()) return text;
    text += vocabulary().piece(token);
  }
  return state.complete() ? std::optional(text) : std::nullopt;
}

void expect_refused(const std::function<void()>& call, ErrorCode code, std::string_view part) {
  try {
    call();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(part), std::string_view::npos) << e.what();
  }
}

TEST(Gbnf, MatchesWhatItsRulesSay) {
  const struct {
    const char* grammar;
    std::vector<std::string> in, out;
  } cases[] = {
      {R"(root ::= "a" | "bc" "d"?)", {"a", "bc", "bcd"}, {"", "b", "ad", "bcdd"}},
      {"root ::= (\"x\" # comment\n  | y)* # more\ny ::= [0-9]+\n\n# the end", {"", "x", "12x3"}, {"y", "-1"}},
      {R"(root ::= "a"{2,3} "b"{2} "c"{1,} [^a-z]{0,1})",
       {"aabbc", "aaabbcc", "aabbcZ"},
       {"abbc", "aaaabbc", "aabbcz"}},
      {R"(root ::= [\x41-\x43\u00e9\U0001F600\]\-] "\"\\\n")",
       {"A\"\\\n", "é\"\\\n", "😀\"\\\n", "]\"\\\n", "-\"\\\n"},
       {"D\"\\\n", "A"}},
      {R"(root ::= . "x")", {"ax", "éx", "\nx", "😀x"}, {"x", "aax", "\xC3x"}},
      {R"g(root ::= expr
expr ::= term ([-+] term)*
term ::= factor ([*/] factor)*
factor ::= [0-9]+ | "(" expr ")")g",
       {"1", "1+2*3", "(1-2)*(3/(4))"},
       {"1+", "(1", "1)", "()"}},
      {"root ::= item+\nitem ::= \"- \" [^\\r\\n]+ \"\\n\"", {"- a\n", "- b c\n- d\n"}, {"- \n", "-a\n", "- a"}},
      {R"(root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | piece | castle) [+#]?
piece ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?)",
       {"1. e4 e5\n2. Nf3 Nc6\n", "1. d4 O-O-O+\n12. exd5 Qxd8#\n"},
       {"1. e4 e5\n", "1. e9 e5\n2. a1 a2\n"}},
      {"root ::= \"a\"\n  | \"b\"\n\nother ::= root", {"a", "b"}, {"ab", ""}},
      {"root ::= list\nlist ::= \"a\" \",\" list | \"a\"", {"a", "a,a,a"}, {"a,", ",a"}},
      {"root ::= \"a\" root root | \"b\"", {"b", "abb", "aabbabb"}, {"a", "ab", "bb"}},
      {"root ::= \"a\" root \"a\" | empty\nempty ::= \"\"", {"", "aa", "aaaa"}, {"a", "aaa"}},
      {"root ::= (x x?){3}\nx ::= [ab]?", {"", "a", "ababab"}, {"abababa", "c"}},
      {"root ::= (\"\"*)* \"a\"** \"b\"?+", {"", "aab", "bbb"}, {"ba"}},
  };
  for (const auto& c : cases) {
    const GrammarPtr grammar = Grammar::from_gbnf(c.grammar);
    for (const std::string& text : c.in) EXPECT_TRUE(matches(grammar, text)) << c.grammar << " must match: " << text;
    for (const std::string& text : c.out)
      EXPECT_FALSE(matches(grammar, text)) << c.grammar << " must not match: " << text;
  }
}

TEST(Gbnf, RefusesWhatIsNoGrammarWithLineAndColumn) {
  const struct {
    const char* grammar;
    const char* part;
  } cases[] = {
      {"", "no rule 'root'"},
      {"a ::= \"x\"", "no rule 'root'"},
      {"root ::= b", "line 1 column 10: the rule 'b' is used and nowhere defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2 column 1: the rule 'root' is defined twice"},
      {"root ::= \"a", "no closing quote"},
      {"root ::= [a", "no closing ']'"},
      {"root ::= [b-a]", "range of characters"},
      {"root ::= (\"a\"", "')' is expected"},
      {"root ::= \"a\")", "line 1 column 13: ')' makes no sense here"},
      {"root = \"a\"", "'::=' is expected"},
      {"root ::= \"a\"{3,2}", "is empty"},
      {"root ::= \"a\"{x}", "a number is expected"},
      {"root ::= \"\\q\"", "unknown escape"},
      {"root ::= \"\\ud800\"", "no character of Unicode"},
      {"root ::= !<think>", "'any token but'"},
      {"root ::= <think", "the name of a token ends with '>'"},
      {"root ::= root \"a\" | \"b\"", "'root' of the grammar is left-recursive"},
      {"root ::= e x\ne ::= \"\"\nx ::= e y\ny ::= x \"a\" | \"b\"", "left-recursive"},
      {"root ::= \"a\" root", "no text matches the rule 'root'"},
      {"root ::= \"a\"?????????????", "repetitions of a repetition"},
  };
  for (const auto& c : cases)
    expect_refused([&] { Grammar::from_gbnf(c.grammar); }, ErrorCode::kInvalidArgument, c.part);
  const std::string nested = "root ::= " + std::string(1000, '(') + "\"a\"" + std::string(1000, ')');
  expect_refused([&] { Grammar::from_gbnf(nested); }, ErrorCode::kInvalidArgument, "nested more than");
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 5000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  expect_refused([&] { Grammar::from_gbnf(chain + "r5000 ::= \"a\""); }, ErrorCode::kUnsupported, "1000 deep");
  expect_refused(
      [&] { Grammar::from_gbnf("root ::= ((\"a\"{1000}){1000}){1000} \"\\U0001F600\"{90000} \"b\"{90000}"); },
      ErrorCode::kUnsupported, "more than 131072 states");
}

TEST(GrammarState, AllowsExactlyTheTokensWhoseBytesCanGoOn) {
  const char* grammars[] = {
      R"(root ::= "{\"" [a-zé日]+ "\": " ("null" | "true" | [0-9]+) "}")",
      R"(root ::= "a" root "bc"? | "abc" | "日本"+ [^a])",
      R"(root ::= [^\x00-\x7F]{1,3} " "?)",
      "root ::= \"a\" root root | \"b\" | \"\"",
  };
  std::mt19937 random(7);
  size_t refused = 0, permitted = 0;
  for (const char* text : grammars) {
    const GrammarPtr grammar = Grammar::from_gbnf(text);
    for (int walk = 0; walk < 5; ++walk) {
      GrammarState state = state_of(grammar);
      std::string so_far;
      for (int i = 0; i < 12 && !state.finished(); ++i) {
        const std::vector<bool> mask = allowed(state);
        std::vector<int32_t> next;
        for (int32_t t = 0; t < vocabulary().n_vocab(); ++t) {
          const bool wanted = t == end_token()             ? state.complete()
                              : vocabulary().is_special(t) ? false
                                                           : read(grammar, so_far + vocabulary().piece(t)).possible;
          ASSERT_EQ(mask[static_cast<size_t>(t)], wanted) << text << " behind '" << so_far << "': token " << t;
          ASSERT_EQ(state.allows(t), wanted);
          ++(wanted ? permitted : refused);
          if (wanted && t != end_token()) next.push_back(t);
        }
        const int32_t token = next[random() % next.size()];
        state.accept(token);
        so_far += vocabulary().piece(token);
      }
    }
  }
  EXPECT_GT(refused, 10'000u);
  EXPECT_GT(permitted, 500u);
}

// All sentences of a grammar without loops are known; a matcher that only compares texts says what may follow.
TEST(GrammarState, AgreesWithAListOfAllSentences) {
  const GrammarPtr grammar = Grammar::from_gbnf(R"(root ::= pair ("," pair){0,2}
pair ::= ("a" | "ab" | "é") "b"? [xy])");
  std::set<std::string> sentences, prefixes;
  std::vector<std::string> pairs;
  for (const char* a : {"a", "ab", "é"})
    for (const char* b : {"", "b"})
      for (const char* c : {"x", "y"}) pairs.push_back(std::string(a) + b + c);
  for (const std::string& p : pairs) {
    sentences.insert(p);
    for (const std::string& q : pairs) {
      sentences.insert(p + "," + q);
      for (const std::string& r : pairs) sentences.insert(p + "," + q + "," + r);
    }
  }
  for (const std::string& s : sentences)
    for (size_t n = 0; n <= s.size(); ++n) prefixes.insert(s.substr(0, n));
  for (const std::string& prefix : prefixes) {
    EXPECT_EQ(matches(grammar, prefix), sentences.contains(prefix)) << prefix;
    for (const char* more : {"a", "b", "x", ",", "\xC3", "\xA9", "z"})
      EXPECT_EQ(read(grammar, prefix + more).possible, prefixes.contains(prefix + more)) << prefix << more;
  }
}

TEST(GrammarState, EndsOnlyWhereTheTextIsWhole) {
  GrammarState state = state_of(Grammar::from_gbnf(R"(root ::= "ab" "c"?)"));
  const int32_t ab = *vocabulary().find("ab"), c = 'c' - 33 + 33;
  EXPECT_FALSE(state.complete());
  EXPECT_FALSE(state.allows(end_token()));
  expect_refused([&] { state.accept(end_token()); }, ErrorCode::kInvalidArgument, "cannot follow");
  state.accept(ab);
  EXPECT_TRUE(state.complete());
  EXPECT_FALSE(state.finished());
  EXPECT_TRUE(state.allows(end_token()));
  EXPECT_TRUE(state.allows(c));
  GrammarState moved = std::move(state);
  moved.accept(c);
  EXPECT_TRUE(moved.finished());
  const std::vector<bool> mask = allowed(moved);
  EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 1);
  moved.accept(end_token());
  EXPECT_TRUE(moved.finished());
  EXPECT_FALSE(moved.allows(end_token()));
}

TEST(GrammarState, KeepsItsPlaceWhenItForgetsWhatItFound) {
  // Every byte leads to a new state: far more than are kept.
  const GrammarPtr grammar = Grammar::from_gbnf(R"g(root ::= "(" root ")" root2 | "."
root2 ::= "+" root | "")g");
  GrammarState state = state_of(grammar);
  const auto accept = [&](char c, int times) {
    for (int i = 0; i < times; ++i) state.accept(static_cast<unsigned char>(c));
  };
  accept('(', 30'000);
  accept('.', 1);
  accept(')', 29'999);
  EXPECT_FALSE(state.complete());
  EXPECT_FALSE(state.allows('.'));
  accept(')', 1);
  EXPECT_TRUE(state.complete());
  EXPECT_FALSE(state.allows(')'));
  EXPECT_TRUE(state.allows('+'));
}

TEST(GrammarState, ReadsTokensThatTheGrammarNames) {
  const int32_t other = *vocabulary().find("<|other|>"), name = *vocabulary().find("name");
  for (const std::string& spelling : {std::string("<|other|>"), fmt::format("<[{}]>", other)}) {
    GrammarState state =
        state_of(Grammar::from_gbnf("root ::= [^x]* " + spelling + " <[" + std::to_string(name) + "]>"));
    EXPECT_TRUE(state.allows(other));
    EXPECT_TRUE(allowed(state)[static_cast<size_t>(other)]);
    EXPECT_TRUE(state.allows(name)) << "as text";
    EXPECT_FALSE(state.allows(0xFF)) << "a byte that no text has";
    EXPECT_FALSE(state.complete());
    state.accept(name);
    state.accept(other);
    EXPECT_EQ(allowed(state)[static_cast<size_t>(name)], true);
    EXPECT_FALSE(state.allows('n')) << "its text is not the token";
    state.accept(name);
    EXPECT_TRUE(state.finished());
  }
  for (const char* missing : {"<|nothing|>", "<[100000]>", "<[-1]>", "<[x]>"})
    expect_refused([&] { state_of(Grammar::from_gbnf(std::string("root ::= ") + missing)); },
                   ErrorCode::kInvalidArgument, missing);
}

TEST(GrammarState, GivesUpOnAGrammarThatIsTooAmbiguous) {
  const GrammarPtr grammar = Grammar::from_gbnf("root ::= (x x x x x x x x){4000} \"b\"\nx ::= [ab]?");
  GrammarState state = state_of(grammar);
  for (int i = 0; i < 3; ++i) state.accept('a');
  EXPECT_TRUE(state.allows('b'));
  // A token of thousands of characters asks for one set of 32,000 positions after another.
  gguf::Metadata metadata = byte_level({}, {{std::string(4000, 'a'), TokenType::kNormal}});
  const Tokenizer long_word = Tokenizer::from_metadata(metadata);
  GrammarState other(grammar, std::make_shared<const TokenTable>(long_word));
  try {
    other.allows(256);
    FAIL() << "it took every position";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported) << e.what();
  }
}

struct SchemaCase {
  const char* schema;
  std::vector<std::string> in, out;
};

TEST(JsonSchema, MatchesTheDocumentsItDescribes) {
  const SchemaCase cases[] = {
      {R"({})",
       {"1", "\"x\"", "[]", "{\"a\": [1, null]}", "true"},
       {"", "x", "[1,]", "{a:1}", "01", "1.", "\"\\ud800\""}},
      {R"({"type": "object"})", {"{}", "{\"a\": 1}", "{\n  \"a\": {\"b\": []}\n}"}, {"1", "[]"}},
      {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a"]})",
       {"{\"a\": 1}", "{\"a\":-12,\"b\":true}", "{ \"a\": 0, \"b\": false }"},
       {"{}", "{\"b\":true}", "{\"b\":true,\"a\":1}", "{\"a\":1,\"c\":1}", "{\"a\":1.5}", "{\"a\":1,}"}},
      {R"({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"], "additionalProperties": {"type": "integer"}})",
       {"{\"b\":1}", "{\"a\":1,\"b\":2,\"c\":3}", "{\"b\":1,\"x\":7}", "{\"b\":1,\"c\":null,\"aa\":7,\"\":8}"},
       {"{}", "{\"b\":1,\"x\":\"y\"}", "{\"x\":1,\"b\":1}", "{\"b\":1,\"a\":2}", "{\"b\":1,\"\\u0061\":2}"}},
      {R"({"type": "object", "properties": {"a": {"type":"null"}}, "additionalProperties": true})",
       {"{}", "{\"a\":null}", "{\"ab\":1}", "{\"a\":null,\"b\":[]}"},
       {"{\"a\":1}", "{\"b\":1,\"a\":1}"}},
      {R"({"type": "object", "properties": {}})", {"{}", "{ }"}, {"{\"a\":1}"}},
      {R"({"type": "object", "required": ["x"]})", {"{\"x\":1}"}, {"{}"}},
      {R"({"enum": ["red", "a\"b", 3, null, {"k": [1]}]})",
       {"\"red\"", "\"a\\\"b\"", "3", "null", "{\"k\":[1]}"},
       {"red", "\"r\"", "4"}},
      {R"({"type": "string", "enum": ["x", 3]})", {"\"x\""}, {"3"}},
      {R"({"const": "é"})", {"\"é\""}, {"\"e\"", "\"\\u00e9\""}},
      {R"({"type": ["string", "null"], "maxLength": 2})",
       {"null", "\"\"", "\"éé\"", "\"\\ud83d\\ude00a\""},
       {"\"abc\"", "1"}},
      {R"({"anyOf": [{"type": "integer"}, {"type": "object", "properties": {"t": {"const": 1}}, "required": ["t"]}]})",
       {"5", "{\"t\": 1}"},
       {"\"5\"", "{\"t\":2}", "{}"}},
      {R"({"type": "object", "properties": {"a": {}, "b": {}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]})",
       {"{\"a\":1}", "{\"b\":1}"},
       {"{}"}},
      {R"({"allOf": [{"$ref": "#/$defs/p"}, {"properties": {"b": {"type":"null"}}, "required": ["b"]}],
          "$defs": {"p": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}})",
       {"{\"a\":1,\"b\":null}"},
       {"{\"a\":1}", "{\"b\":null}"}},
      {R"({"$ref": "#/definitions/node", "definitions": {"node": {"type": "object", "properties": {
          "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}},
          "required": ["value", "next"], "additionalProperties": false}}})",
       {"{\"value\":1,\"next\":null}", "{\"value\":1,\"next\":{\"value\":2,\"next\":null}}"},
       {"{\"value\":1}", "null"}},
      {R"({"type": "array", "items": {"$ref": "#"}})", {"[]", "[[],[[]]]"}, {"1", "[1]"}},
      {R"({"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3})",
       {"[1, 2]", "[1,2,3]"},
       {"[]", "[1]", "[1,2,3,4]"}},
      {R"({"type": "array", "maxItems": 1})", {"[]", "[{}]"}, {"[1,2]"}},
      {R"({"type": "array", "maxItems": 0})", {"[]"}, {"[1]"}},
      {R"({"type": "array", "minItems": 1})", {"[1]", "[1,2,3]"}, {"[]"}},
      {R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]})",
       {"[1, \"a\"]"},
       {"[1]", "[1,\"a\",2]"}},
      {R"({"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "integer"}, "maxItems": 3, "minItems": 2})",
       {"[null,1]", "[null,1,2]"},
       {"[null]", "[null,1,2,3]"}},
      {R"({"type": "string", "minLength": 2, "maxLength": 3})", {"\"ab\"", "\"a\\nb\""}, {"\"a\"", "\"abcd\""}},
      {R"({"type": "string", "pattern": "^[A-Z]{2}-\\d+(x|y)?$"})",
       {"\"AB-1\"", "\"AB-12y\""},
       {"\"A-1\"", "\"AB-\"", "\"AB-1z\""}},
      {R"({"type": "string", "pattern": "b+?c|^q"})",
       {"\"abbcd\"", "\"bc\"", "\"qx\"", "\"\\nbc\""},
       {"\"b\"", "\"xq\""}},
      {R"({"type": "string", "pattern": "^[^a\"]\\\\\\s.$"})",
       {"\"b\\\\\\n.\"", "\"é\\\\ x\""},
       {"\"a\\\\ x\"", "\"b\\\\ \\n\""}},
      {R"({"type": "string", "format": "date"})",
       {"\"2024-02-29\"", "\"2023-12-31\"", "\"2000-02-29\""},
       {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-13-01\"", "\"2023-04-31\""}},
      {R"({"type": "string", "format": "time"})",
       {"\"23:59:59Z\"", "\"00:00:00.25+02:00\""},
       {"\"24:00:00Z\"", "\"1:00:00Z\"", "\"10:00:00\""}},
      {R"({"type": "string", "format": "date-time"})", {"\"2024-02-29T01:02:03Z\""}, {"\"2024-02-29 01:02:03Z\""}},
      {R"({"type": "string", "format": "uuid"})", {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567\""}},
      {R"({"type": "string", "format": "email"})", {"\"a.b@c.de\""}, {"\"a@b\"", "\"@b.c\""}},
      {R"({"type": "string", "format": "ipv4"})",
       {"\"127.0.0.1\"", "\"255.255.255.255\""},
       {"\"256.1.1.1\"", "\"1.1.1\""}},
      {R"({"type": "string", "format": "uri"})",
       {"\"https://example.org/a?b=c#d\"", "\"mailto:\""},
       {"\"//x\"", "\"http//x\""}},
      {R"({"type": "integer", "exclusiveMinimum": 0})", {"1", "10", "123456"}, {"0", "-1", "01", "1.0"}},
      {R"({"type": "number", "minimum": 0, "maximum": 1})",
       {"0", "1", "0.5", "1.0", "0.05"},
       {"-0.5", "1.1", "2", "1e0"}},
      {R"({"type": "number", "exclusiveMinimum": -2, "exclusiveMaximum": 2})",
       {"-1.99", "-1", "0", "1.5", "-0.5"},
       {"-2", "2", "2.0", "-2.1"}},
      {R"({"type": "number", "maximum": -1})", {"-1", "-1.5", "-100", "-1.0"}, {"-0.5", "0", "1"}},
  };
  for (const SchemaCase& c : cases) {
    GrammarPtr grammar;
    ASSERT_NO_THROW(grammar = Grammar::from_json_schema(Json::parse(c.schema))) << c.schema;
    for (const std::string& text : c.in) {
      EXPECT_TRUE(Json::accept(text)) << text;
      EXPECT_TRUE(matches(grammar, text)) << c.schema << " must match " << text;
    }
    for (const std::string& text : c.out)
      EXPECT_FALSE(matches(grammar, text)) << c.schema << " must not match " << text;
  }
}

TEST(JsonSchema, KeepsIntegersBetweenTheirBounds) {
  const std::pair<int64_t, int64_t> ranges[] = {{0, 0},    {0, 9},        {5, 123}, {-3, 4}, {-120, -15},
                                                {99, 101}, {-1000, 1000}, {7, 7},   {10, 99}};
  for (const auto& [low, high] : ranges) {
    const GrammarPtr grammar = Grammar::from_json_schema({{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    for (int64_t i = -1200; i <= 1200; ++i)
      ASSERT_EQ(matches(grammar, std::to_string(i)), low <= i && i <= high) << i << " in " << low << ".." << high;
    EXPECT_FALSE(matches(grammar, "00"));
  }
}

TEST(JsonSchema, RefusesByNameAndPathWhatNoGrammarEnforces) {
  const struct {
    const char* schema;
    ErrorCode code;
    const char* part;
  } cases[] = {
      {R"({"type": "array", "uniqueItems": true})", ErrorCode::kUnsupported, "'uniqueItems' at #"},
      {R"({"properties": {"a": {"not": {}}}})", ErrorCode::kUnsupported, "'not' at #/properties/a"},
      {R"({"type": "object", "patternProperties": {}})", ErrorCode::kUnsupported, "'patternProperties' at #"},
      {R"({"items": {"type": "integer", "multipleOf": 2}})", ErrorCode::kUnsupported, "'multipleOf' at #/items"},
      {R"({"type": "string", "format": "regex"})", ErrorCode::kUnsupported, "'format' at #"},
      {R"g({"type": "string", "pattern": "(?=a)"})g", ErrorCode::kUnsupported, "assertion"},
      {R"({"type": "string", "pattern": "(a)\\1"})", ErrorCode::kUnsupported, "back reference"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", ErrorCode::kUnsupported, "'maxLength' at #"},
      {R"({"type": "number", "minimum": 0.5})", ErrorCode::kUnsupported, "'minimum' at #"},
      {R"({"$ref": "https://example.org/x"})", ErrorCode::kUnsupported, "'$ref' at #"},
      {R"({"minProperties": 3})", ErrorCode::kUnsupported, "'minProperties' at #"},
      {R"({"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "integer"}}}]})",
       ErrorCode::kUnsupported, "'allOf' at #"},
      {R"({"$ref": "#/$defs/none"})", ErrorCode::kInvalidArgument, "points to"},
      {R"({"type": "float"})", ErrorCode::kInvalidArgument, "'float' is no type"},
      {R"({"type": "integer", "minimum": 3, "maximum": 2})", ErrorCode::kInvalidArgument, "no number lies between"},
      {R"([])", ErrorCode::kInvalidArgument, "a schema is an object"},
      {R"({"allOf": [{"$ref": "#"}]})", ErrorCode::kUnsupported, "nest too deep"},
      {R"({"$ref": "#"})", ErrorCode::kInvalidArgument, "at #: a '$ref' leads back there"},
      {R"({"anyOf": [{"$ref": "#"}]})", ErrorCode::kInvalidArgument, "at #: a '$ref' leads back there"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "null"}]})", ErrorCode::kInvalidArgument, "at #: a '$ref' leads back"},
      {R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})", ErrorCode::kInvalidArgument, "without an end"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
                                          "b": {"oneOf": [{"$ref": "#/$defs/a"}, {"type": "string"}]}}})",
       ErrorCode::kInvalidArgument, "at #/$defs/a: a '$ref' leads back there"},
  };
  for (const auto& c : cases) expect_refused([&] { Grammar::from_json_schema(Json::parse(c.schema)); }, c.code, c.part);
}

TEST(JsonSchema, RandomAnswersParseAndFit) {
  const Json schema = Json::parse(R"({"type": "object", "properties": {
      "name": {"type": "string", "minLength": 1, "maxLength": 6},
      "age": {"type": "integer", "minimum": 0, "maximum": 150},
      "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
      "kind": {"anyOf": [{"const": "x"}, {"type": "null"}]}},
      "required": ["name", "kind"], "additionalProperties": false})");
  const GrammarPtr grammar = Grammar::from_json_schema(schema);
  std::mt19937 random(3);
  int whole = 0;
  for (int i = 0; i < 60; ++i) {
    const auto text = random_text(grammar, random, 200);
    if (!text) continue;
    ++whole;
    const Json answer = Json::parse(*text, nullptr, false);
    ASSERT_TRUE(answer.is_object()) << *text;
    ASSERT_TRUE(answer.contains("name") && answer.contains("kind")) << *text;
    EXPECT_TRUE(answer["kind"].is_null() || answer["kind"] == "x") << *text;
    EXPECT_GE(answer["name"].get<std::string>().size(), 1u);
    for (const auto& [key, value] : answer.items()) EXPECT_TRUE(schema["properties"].contains(key)) << *text;
    const Json age = answer.value("age", Json(0));
    EXPECT_TRUE(age >= 0 && age <= 150) << *text;
    EXPECT_LE(answer.value("tags", Json::array()).size(), 3u) << *text;
  }
  EXPECT_GE(whole, 30);
}

TEST(JsonSchema, RandomTextsOfAnyObjectParse) {
  const GrammarPtr any = Grammar::from_json_schema({{"type", "object"}});
  std::mt19937 random(5);
  int whole = 0;
  for (int i = 0; i < 80; ++i) {
    const auto text = random_text(any, random, 400);
    if (!text) continue;
    ++whole;
    EXPECT_TRUE(Json::parse(*text, nullptr, false).is_object()) << *text;
  }
  EXPECT_GE(whole, 10);
}

}  // namespace
}  // namespace tern::text
