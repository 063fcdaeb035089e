#include "text/jinja.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/jinja_python.h"

namespace tern::text {
namespace {

using jinja::Limits;
using jinja::Template;

const std::chrono::system_clock::time_point kNow = std::chrono::system_clock::from_time_t(1750000000);

std::string render(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  return Template::parse(source, limits).render(variables, kNow);
}

std::optional<std::string> try_render(const std::string& source, const Json& variables) {
  try {
    return render(source, variables);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The error of a template that must fail, as "code: message".
std::string error_of(std::string_view source, const Json& variables = Json::object(), const Limits& limits = {}) {
  try {
    return "rendered: " + render(source, variables, limits).substr(0, 100);
  } catch (const Error& e) {
    return std::to_string(static_cast<int>(e.code())) + ": " + e.what();
  }
}
std::string code(ErrorCode c) {
  return std::to_string(static_cast<int>(c)) + ": chat template, line ";
}

TEST(Jinja, AgreesWithPythonOnEveryConstruct) {
  const Json file = read_json(TERN_SOURCE_DIR "/tests/golden/templates/cases.json");
  std::vector<Json> cases;
  std::vector<std::string> names;
  for (const Json& group : file["groups"]) {
    for (const Json& source : group["templates"]) {
      cases.push_back({{"template", source},
                       {"variables", file["variables"]},
                       {"now", std::chrono::system_clock::to_time_t(kNow)},
                       {"mutable", group.value("mutable", false)}});
      names.push_back(group["name"].get<std::string>() + ": " + source.get<std::string>());
    }
  }
  ASSERT_GT(cases.size(), 1000u);
  const auto expected = render_with_python(cases);
  std::size_t rendered = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    rendered += expected[i].has_value();
    EXPECT_EQ(try_render(cases[i]["template"].get<std::string>(), cases[i]["variables"]), expected[i]) << names[i];
  }
  EXPECT_GT(rendered, 900u);  // the rest are templates that must fail on both sides
}

TEST(Jinja, ErrorsSayTheLineAndWhatHappened) {
  const std::string failed = code(ErrorCode::kInvalidArgument);
  const std::string syntax = code(ErrorCode::kBadFile);
  EXPECT_EQ(error_of("a\n{{ x.y }}"), failed + "2: 'x' is undefined");
  EXPECT_EQ(error_of("\n\n{{ m.y.z }}", {{"m", Json::object()}}),
            failed + "3: a value of type 'dict' has no attribute 'y'");
  EXPECT_EQ(error_of("{% if true %}\n{{ raise_exception('No system role!') }}{% endif %}"),
            failed + "2: No system role!");
  EXPECT_EQ(error_of("{{ 1 + 'a' }}"), failed + "1: '+' does not work on 'int' and 'str'");
  EXPECT_EQ(error_of("{{ 2 ** 200 }}"), failed + "1: an integer grows past 128 bits");
  EXPECT_EQ(error_of("\n{% for x in y %}"), syntax + "2: the template ends where 'endfor' is missing");
  EXPECT_EQ(error_of("{{ 'abc }}"), syntax + "1: a string has no end: ' is missing");
  EXPECT_EQ(error_of("\n\n{# x"), syntax + "3: a comment has no end: '#}' is missing");
  EXPECT_EQ(error_of("x\n{% include 'y' %}"), syntax + "2: 'include' is not supported: a chat template is one file");
  EXPECT_EQ(error_of("{% frobnicate %}"), syntax + "1: unknown tag 'frobnicate'");
  EXPECT_EQ(error_of("{{ 'a'|frobnicate }}"), code(ErrorCode::kUnsupported) + "1: there is no filter 'frobnicate'");
}

TEST(Jinja, KeepsTheOrderOfKeysAndEveryDigit) {
  const Json tool = {
      {"zebra", 1}, {"apple", {{"y", 18446744073709551615ULL}, {"x", -9223372036854775807LL}}}, {"m", 0.1}};
  EXPECT_EQ(render("{{ tool|tojson }}", {{"tool", tool}}),
            R"({"zebra": 1, "apple": {"y": 18446744073709551615, "x": -9223372036854775807}, "m": 0.1})");
}

TEST(Jinja, BytesThatAreNoUtf8BecomeReplacementCharacters) {
  EXPECT_EQ(render("{{ x|length }}{{ x }}", {{"x", "a\xff\xe4\xbd"}}), "3a\uFFFD\uFFFD");
  EXPECT_EQ(render("\xff{{ 'b\xc3' }}"), "\uFFFDb\uFFFD");
}

TEST(Jinja, ATemplateThatNeverEndsIsStopped) {
  const Limits small{.work = 1'000'000};
  const std::string stopped = code(ErrorCode::kUnsupported) + "1: the template did not finish within 1000000 steps";
  const std::string three_loops =
      "{% for a in range(300) %}{% for b in range(300) %}{% for c in range(300) %}{% endfor %}{% endfor %}{% endfor "
      "%}";
  EXPECT_TRUE(error_of(three_loops, {}, small).starts_with(stopped));
  EXPECT_TRUE(error_of("{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}", {}, small)
                  .starts_with(stopped));
  EXPECT_TRUE(
      error_of("{% set l = range(9999)|list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}", {}, small)
          .starts_with(stopped));
  // Comparing values that share their parts takes time that their size does not show.
  const std::string shared =
      "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(90) %}"
      "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}";
  EXPECT_TRUE(error_of(shared, {}, small).starts_with(stopped));
}

TEST(Jinja, ATemplateThatEatsMemoryIsStopped) {
  const Limits small{.memory = std::size_t{1} << 20};
  const std::string stopped = code(ErrorCode::kOutOfMemory) + "1: the template needs more than the 1 MiB";
  for (const char* source : {
           "{{ 'a' * 2000000000 }}",
           "{{ [1] * 2000000000 }}",
           "{% set n = namespace(s='ab') %}{% for i in range(90) %}{% set n.s = n.s ~ n.s %}{% endfor %}",
           "{% set n = namespace(s='ab') %}{% for i in range(90) %}{% set n.s = n.s.replace('a', n.s) %}{% endfor %}",
           "{% set n = namespace(l=[1]) %}{% for i in range(90) %}{% set n.l = n.l + n.l %}{% endfor %}",
           "{{ 'a'|center(2000000000) }}",
           "{{ 'a'|indent(2000000000, true) }}",
           "{{ 'a'.zfill(2000000000) }}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '{:1000000000}'.format(1) }}",
           "{{ [1]|batch(2000000000, 1)|list }}",
           "{{ [1]|slice(2000000000)|list }}",
           "{{ [[1]]|tojson(indent='x' * 900000) }}",
           "{% set l = [] %}{% for i in range(99999) %}{% set _ = l.append([i]) %}{% endfor %}",
           "{% set n = namespace(x=['abcdefgh']) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ "
           "n.x }}",
       }) {
    EXPECT_TRUE(error_of(source, {}, small).starts_with(stopped)) << source << "\n" << error_of(source, {}, small);
  }
}

TEST(Jinja, NoBuiltinWorksForLongUnpaid) {
  const Limits small{.memory = std::size_t{16} << 20, .work = 300'000};
  for (const char* body : {
           "w[9999999]",
           "w|length ~ w",
           "'ab'|truncate(1, end=s)",
           "s.replace('x', 'yy')",
           "s[::-1]",
           "s[::2]",
           "s[500000]",
           "w[::-1]",
           "w[500000]",
           "w|upper",
           "w|title",
           "s.split('x')",
           "s.split()",
           "s.splitlines()",
           "s|trim",
           "s|escape",
           "s|indent(4)",
           "s|tojson",
           "('x' * 400000 ~ 'b') in s",
           "s.find('x' * 400000 ~ 'b')",
           "s.count('x' * 400000 ~ 'b')",
           "s.rfind('b' ~ 'x' * 400000)",
           "s.strip('abcdefghijklmnopqrstuvwxyz')",
           "s ~ s",
           "s == s ~ ''",
           "{s: 1}",
           "l|join(',')",
           "l|sort",
           "l|unique|list",
           "l[::-1]",
           "99999 in l",
           "l|tojson",
           "l|string",
           "l + l",
           "l == l + []",
           "l|batch(2)|list",
           "l|map('string')|list",
           "l|select('odd')|list",
           "l|sum",
           "l|max",
           "'%1000000d' % i",
           "'{:>1000000}'.format(i)",
           "[s] * 10 == [s ~ ''] * 10",
       }) {
    const std::string source =
        "{% set s = 'x' * 1000000 %}{% set w = '\u00e9' * 500000 %}{% set l = range(99999)|list "
        "%}{% for i in range(99999) %}{% set t = " +
        std::string(body) + " %}{% endfor %}";
    const std::string error = error_of(source, {}, small);
    EXPECT_TRUE(error.find("did not finish within") != error.npos || error.find("needs more than") != error.npos)
        << body << ": " << error;
  }
}

TEST(Jinja, OutputHasALimit) {
  const Limits small{.output = 1000};
  EXPECT_TRUE(
      error_of("{% for i in range(1000) %}ab{% endfor %}", {}, small).starts_with(code(ErrorCode::kUnsupported)));
  EXPECT_EQ(render("{% for i in range(500) %}ab{% endfor %}", {}, small).size(), 1000u);
}

TEST(Jinja, NestingIsBoundedEverywhere) {
  const auto repeat = [](std::string_view s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  const std::string syntax = code(ErrorCode::kBadFile);
  constexpr int kDeep = 100'000;
  EXPECT_TRUE(error_of("{{ " + repeat("(", kDeep)).starts_with(syntax));
  EXPECT_TRUE(error_of("{{ " + repeat("[", kDeep)).starts_with(syntax));
  EXPECT_TRUE(error_of("{{ " + repeat("not ", kDeep) + "1 }}").starts_with(syntax));
  EXPECT_TRUE(error_of("{{ " + repeat("-", kDeep) + "1 }}").starts_with(syntax));
  EXPECT_TRUE(error_of("{{ 1" + repeat(" + 1", kDeep) + " }}").starts_with(syntax));
  EXPECT_TRUE(error_of("{{ x" + repeat(".x", kDeep) + " }}").starts_with(syntax));
  EXPECT_TRUE(error_of("{{ x" + repeat("|e", kDeep) + " }}").starts_with(syntax));
  EXPECT_TRUE(error_of("{{ 1" + repeat(" if 1 else 1", kDeep) + " }}").starts_with(syntax));
  EXPECT_TRUE(error_of(repeat("{% if 1 %}", kDeep)).starts_with(syntax));
  EXPECT_TRUE(error_of("{% if 1 %}" + repeat("{% elif 1 %}", kDeep)).starts_with(syntax));
  EXPECT_EQ(render("{{ 1" + repeat(" ~ 1", 2000) + " }}").size(), 2001u);

  const std::string failed = code(ErrorCode::kInvalidArgument);
  EXPECT_TRUE(error_of("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}").starts_with(failed));
  EXPECT_TRUE(error_of("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}").starts_with(failed));
  const std::string nested = "{% set n = namespace(x=[]) %}{% for i in range(5000) %}{% set n.x = [n.x] %}{% endfor %}";
  for (const char* use :
       {"{{ n.x }}", "{{ n.x|tojson }}", "{{ n.x == [n.x] }}", "{{ n.x|string }}", "{{ n.x < n.x }}"}) {
    const std::string error = error_of(nested + use);
    EXPECT_TRUE(error.starts_with(failed) || error == "rendered: False") << use << ": " << error;
  }
  EXPECT_TRUE(error_of("{% set n = namespace() %}{% set n.n = n %}{{ n }}").starts_with(failed));
  EXPECT_TRUE(error_of("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}").starts_with(failed));

  Json deep = "x";
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_TRUE(error_of("x", {{"deep", deep}}).starts_with(failed));
}

TEST(Jinja, LongTextsTakeLinearTime) {
  // Searching "aaa...b" in "aaa..." is quadratic for the naive way: 10^11 steps here.
  const std::string text(1'000'000, 'a');
  const Json variables = {{"text", text}, {"wanted", text.substr(0, 500'000) + "b"}};
  EXPECT_EQ(render("{{ wanted in text }}{{ text.split(wanted)|length }}{{ text.find(wanted) }}", variables),
            "False1-1");
  EXPECT_EQ(render("{{ text|replace(wanted, '')|length }}{{ text.count(wanted) }}", variables), "10000000");
}

TEST(Jinja, OneTemplateRendersManyTimes) {
  const Template t =
      Template::parse("{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(t.render({{"l", {1, 2, i}}}, kNow), std::to_string(3 + i));
}

}  // namespace
}  // namespace tern::text
