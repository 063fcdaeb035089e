// The official Ollama client, unmodified, against `tern serve` with the demo model.
import assert from "node:assert/strict";
import { Ollama } from "ollama";

const client = new Ollama({ host: process.argv[2] });
const { models } = await client.list();
assert.equal(models.length, 1);
const model = models[0].name;
assert.equal(models[0].details.format, "gguf");
const question = [{ role: "user", content: 'What does "river" mean?' }];
const greedy = { model, messages: question, options: { temperature: 0, num_predict: 24 } };

const whole = await client.chat(greedy);
assert.ok(whole.message.content.length > 0);
assert.equal(whole.done_reason, "length");
assert.equal(whole.eval_count, 24);
assert.ok(whole.prompt_eval_count > 5 && whole.total_duration > 0);

let streamed = "";
let last = null;
for await (const part of await client.chat({ ...greedy, stream: true })) {
  streamed += part.message.content;
  last = part;
}
assert.equal(streamed, whole.message.content);
assert.equal(last.eval_count, 24);
assert.equal(last.prompt_eval_count, whole.prompt_eval_count);

const generated = await client.generate({ model: `${model}:latest`, prompt: question[0].content, options: greedy.options });
assert.equal(generated.response, whole.message.content, "a prompt is a conversation of one message");
const raw = await client.generate({ model, prompt: "The river", raw: true, options: greedy.options });
assert.ok(raw.response.length > 0);

const schema = { type: "object", properties: { kind: { enum: ["noun", "verb"] } }, required: ["kind"] };
const shaped = await client.chat({ ...greedy, format: schema, options: { temperature: 0, num_predict: 100 } });
assert.ok(["noun", "verb"].includes(JSON.parse(shaped.message.content).kind));

const { context_length } = (await client.ps()).models[0];
const shown = await client.show({ model });
assert.equal(shown.model_info[`${shown.details.family}.context_length`], context_length);
assert.ok(shown.capabilities.includes("completion") && shown.template.includes("messages"));

await assert.rejects(client.chat({ ...greedy, options: { num_ctx: context_length + 1 } }), (e) => e.status_code === 400 && e.message.includes(`${context_length}`));
await assert.rejects(client.chat({ ...greedy, think: true }), (e) => e.status_code === 400);
await assert.rejects(client.chat({ ...greedy, model: "another" }), (e) => e.status_code === 404);

const left = await client.chat({ ...greedy, options: { temperature: 0 }, stream: true });
await assert.rejects(async () => {
  for await (const part of left) if (part.message.content) left.abort();
});

const { embeddings } = await client.embed({ model, input: ["a river", "a mountain"] });
assert.equal(embeddings.length, 2);
assert.ok(Math.abs(embeddings[0].reduce((sum, x) => sum + x * x, 0) - 1) < 1e-4);
