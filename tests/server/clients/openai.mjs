// The official OpenAI client, unmodified, against `tern serve` with the demo model.
import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.argv[2]}/v1`, apiKey: "none", maxRetries: 0 });
const question = [{ role: "user", content: 'What does "river" mean?' }];
const greedy = { messages: question, model: "", temperature: 0, max_tokens: 24 };

const models = await client.models.list();
assert.equal(models.data.length, 1);
greedy.model = models.data[0].id;

const whole = await client.chat.completions.create(greedy);
const text = whole.choices[0].message.content;
assert.ok(text.length > 0);
assert.equal(whole.choices[0].finish_reason, "length");
assert.equal(whole.usage.completion_tokens, 24);

let streamed = "";
let usage = null;
const stream = await client.chat.completions.create({ ...greedy, stream: true, stream_options: { include_usage: true } });
for await (const chunk of stream) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.equal(usage.completion_tokens, 24);
assert.ok(usage.prompt_tokens_details.cached_tokens > 0, "the second time the prompt is in the cache");

// Leaving in the middle of an answer harms nobody.
const left = await client.chat.completions.create({ ...greedy, max_tokens: 2000, stream: true });
for await (const chunk of left) if (chunk.choices[0]?.delta?.content) break;

const shaped = await client.chat.completions.create({
  ...greedy,
  max_tokens: 200,
  response_format: {
    type: "json_schema",
    json_schema: {
      name: "word",
      schema: {
        type: "object",
        properties: { kind: { enum: ["noun", "verb"] }, meanings: { type: "integer", minimum: 0, maximum: 9 } },
        required: ["kind", "meanings"],
      },
    },
  },
});
const word = JSON.parse(shaped.choices[0].message.content);
assert.ok(["noun", "verb"].includes(word.kind) && Number.isInteger(word.meanings));

const continued = await client.completions.create({ model: greedy.model, prompt: "The river", max_tokens: 8, temperature: 0 });
assert.ok(continued.choices[0].text.length > 0);

await assert.rejects(client.chat.completions.create({ ...greedy, model: "another" }), (e) => e.status === 404 && e.code === "model_not_found");
await assert.rejects(client.chat.completions.create({ ...greedy, temperature: -1 }), (e) => e.status === 400 && e.param === "temperature");
await assert.rejects(
  client.chat.completions.create({ ...greedy, messages: [{ role: "user", content: "word ".repeat(5000) }] }),
  (e) => e.status === 400 && e.code === "context_length_exceeded",
);

// Responses: whole, streamed, and with a format.
const ask = { model: greedy.model, input: question[0].content, temperature: 0, max_output_tokens: 24 };
const response = await client.responses.create(ask);
assert.equal(response.output_text, text);
assert.equal(response.status, "incomplete");
assert.equal(response.usage.output_tokens, 24);
assert.ok(response.usage.input_tokens_details.cached_tokens > 0);

let said = "";
let ended = null;
for await (const event of client.responses.stream({ ...ask, instructions: "Be brief.", max_output_tokens: 400 })) {
  if (event.type === "response.output_text.delta") said += event.delta;
  ended = event;
}
assert.equal(ended.response.output[0].content[0].text, said);
assert.equal(ended.type, ended.response.status === "completed" ? "response.completed" : "response.incomplete");

const formatted = await client.responses.create({
  ...ask,
  max_output_tokens: 100,
  text: { format: { type: "json_schema", name: "word", schema: { type: "object", properties: { kind: { enum: ["noun"] } }, required: ["kind"] } } },
});
assert.deepEqual(JSON.parse(formatted.output_text), { kind: "noun" });
await assert.rejects(client.responses.create({ ...ask, previous_response_id: "resp_1" }), (e) => e.status === 400 && e.param === "previous_response_id");

// The client asks for base64 and decodes it unless told otherwise.
const decoded = await client.embeddings.create({ model: greedy.model, input: ["a river", "a mountain"] });
const plain = await client.embeddings.create({ model: greedy.model, input: "a river", encoding_format: "float" });
assert.equal(decoded.data.length, 2);
assert.equal(decoded.data[0].embedding.length, plain.data[0].embedding.length);
decoded.data[0].embedding.forEach((x, i) => assert.ok(Math.abs(x - plain.data[0].embedding[i]) < 1e-5));
assert.ok(plain.usage.prompt_tokens > 0);

await client.chat.completions.create({ ...greedy, max_tokens: 4, presence_penalty: 1, frequency_penalty: 0.5 });
