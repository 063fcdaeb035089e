// The official Anthropic client, unmodified, against `tern serve` with the demo model in the template of Qwen 3.5.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const { data } = await (await fetch(`${process.argv[2]}/v1/models`)).json();
const request = {
  model: data[0].id,
  max_tokens: 6,
  temperature: 0,
  thinking: { type: "disabled" },
  system: "Be brief.",
  messages: [{ role: "user", content: 'What does "river" mean?' }],
};

const whole = await client.messages.create(request);
assert.equal(whole.role, "assistant");
assert.equal(whole.stop_reason, "max_tokens");
assert.equal(whole.usage.output_tokens, 6);
assert.ok(whole.content[0].text.length > 0);

const streamed = await client.messages.stream(request).finalMessage();
assert.equal(streamed.content[0].text, whole.content[0].text);
assert.equal(streamed.stop_reason, "max_tokens");

// A forced call behind a thought that a budget ends: blocks of both, whole and streamed.
const tools = [
  {
    name: "get_weather",
    description: "The weather of a city",
    input_schema: {
      type: "object",
      properties: { city: { type: "string", enum: ["Oslo", "Rome"] }, days: { type: "integer", minimum: 1, maximum: 9 } },
      required: ["city", "days"],
    },
  },
];
const forced = {
  ...request,
  max_tokens: 200,
  thinking: { type: "enabled", budget_tokens: 8 },
  tools,
  tool_choice: { type: "tool", name: "get_weather", disable_parallel_tool_use: true },
};
const called = await client.messages.create(forced);
assert.deepEqual(called.content.map((block) => block.type), ["thinking", "tool_use"]);
assert.ok(called.content[0].thinking.length > 0);
const use = called.content[1];
assert.equal(use.name, "get_weather");
assert.ok(["Oslo", "Rome"].includes(use.input.city) && use.input.days >= 1 && use.input.days <= 9);
assert.equal(called.stop_reason, "tool_use");

let partial = "";
const calling = client.messages.stream(forced).on("inputJson", (piece) => (partial += piece));
const streamedCall = await calling.finalMessage();
assert.deepEqual(streamedCall.content.map((block) => block.type), ["thinking", "tool_use"]);
assert.equal(streamedCall.content[0].thinking, called.content[0].thinking);
assert.deepEqual(streamedCall.content[1].input, use.input);
assert.deepEqual(JSON.parse(partial), use.input);
assert.equal(streamedCall.stop_reason, "tool_use");

const after = await client.messages.create({
  ...request,
  tools,
  messages: [
    ...request.messages,
    { role: "assistant", content: called.content },
    { role: "user", content: [{ type: "tool_result", tool_use_id: use.id, content: "rain" }] },
  ],
});
assert.ok(after.content.every((block) => block.type === "text" || block.type === "tool_use"));

const { max_tokens, temperature, ...prompt } = request;
const count = await client.messages.countTokens(prompt);
assert.ok(count.input_tokens > 8);

await assert.rejects(client.messages.create({ ...request, model: "another" }), (e) => e.status === 404 && e.error.type === "error");
