// A template that thinks unless told not to and writes calls as JSON, so that the demo model can be made to.
#pragma once

namespace tern::test {

inline constexpr const char* kToolTemplate = R"({%- if tools %}<|im_start|>system
You may call {{ tools | tojson }} within <tool_call></tool_call>.<|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% if enable_thinking is defined and not enable_thinking %}
</think>

{% endif %}{% endif %})";

/// GBNF of one call of a tool `weather`.
inline constexpr const char* kOneCall =
    R"(root ::= "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>")";

}  // namespace tern::test
