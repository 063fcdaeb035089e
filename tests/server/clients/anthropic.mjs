// The official Anthropic client, unmodified, against `tern serve` with the demo model.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const { data } = await (await fetch(`${process.argv[2]}/v1/models`)).json();
const request = {
  model: data[0].id,
  max_tokens: 6,
  temperature: 0,
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

const { max_tokens, temperature, ...prompt } = request;
const count = await client.messages.countTokens(prompt);
assert.ok(count.input_tokens > 8);

await assert.rejects(client.messages.create({ ...request, model: "another" }), (e) => e.status === 404 && e.error.type === "error");
