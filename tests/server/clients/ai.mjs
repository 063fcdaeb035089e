// Vercel's AI SDK through its OpenAI-compatible provider, unmodified, against `tern serve` with the demo model.
import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const tern = createOpenAICompatible({ name: "tern", baseURL: `${process.argv[2]}/v1` });
const { data } = await (await fetch(`${process.argv[2]}/v1/models`)).json();
const request = { model: tern(data[0].id), prompt: 'What does "river" mean?', temperature: 0, maxTokens: 24, maxRetries: 0 };

const whole = await generateText(request);
assert.ok(whole.text.length > 0);
assert.equal(whole.finishReason, "length");
assert.equal(whole.usage.completionTokens, 24);

const stream = streamText(request);
let streamed = "";
for await (const part of stream.textStream) streamed += part;
assert.equal(streamed, whole.text);
