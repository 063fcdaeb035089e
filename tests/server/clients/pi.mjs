// The coding agent pi, unmodified, against `tern serve` with the demo model in the template of Qwen 3: it is asked
// about a file, calls its tool `read`, gets the contents and answers. The model is no agent, so a grammar in the first
// request makes it call; all the rest is as with any model.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const url = process.argv[2];
const modules = join(process.cwd(), "pi", "node_modules");
const home = mkdtempSync(join(tmpdir(), "tern-pi-"));
const project = join(home, "project");
mkdirSync(project);
writeFileSync(join(project, "notes.txt"), "A tern is a seabird.\n");

const { data } = await (await fetch(`${url}/v1/models`)).json();
// The agent keeps a margin of some thousand tokens, more than this model's whole context.
const contextWindow = 4 * data[0].context_length;
const model = { id: data[0].id, contextWindow, maxTokens: 24, samplingParams: { temperature: 0 } };
const providers = { tern: { baseUrl: `${url}/v1`, api: "openai-completions", apiKey: "none", models: [model] } };
writeFileSync(join(home, "models.json"), JSON.stringify({ providers }));
const call = '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>';
writeFileSync(
  join(home, "call.mjs"),
  `export default (pi) => pi.on("before_provider_request", ({ payload }) =>
    payload.messages.at(-1).role === "user" ? { ...payload, max_tokens: undefined, max_completion_tokens: 200,
      grammar: ${JSON.stringify(`root ::= ${JSON.stringify(call)}`)} } : payload);`,
);

const run = spawnSync(
  join(modules, "node", "bin", "node"),
  [join(modules, "@earendil-works", "pi-coding-agent", "dist", "cli.js"), "--mode", "json", "--print", "--no-session", "--no-extensions",
    "--no-skills", "--no-mcp", "--tools", "read", "--model", `tern/${model.id}`, "-e", join(home, "call.mjs"), "What do my notes say?"],
  { cwd: project, env: { ...process.env, HOME: home, PI_CODING_AGENT_DIR: home, PI_OFFLINE: "1" }, encoding: "utf8", timeout: 100_000 },
);
rmSync(home, { recursive: true });
assert.equal(run.status, 0, run.stderr + run.stdout);
const events = run.stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));

const done = events.filter((event) => event.type === "tool_execution_end");
assert.equal(done.length, 1, run.stdout);
assert.equal(done[0].toolName, "read");
assert.equal(done[0].isError, false);
assert.ok(JSON.stringify(done[0].result).includes("A tern is a seabird."));

const replies = events.filter((event) => event.type === "message_end" && event.message.role === "assistant").map((event) => event.message);
assert.equal(replies.length, 2, run.stdout);
assert.equal(replies[0].stopReason, "toolUse");
const text = replies[1].content.filter((part) => part.type === "text").map((part) => part.text).join("");
assert.ok(text.length > 0);
for (const reply of replies) assert.ok(reply.usage.input + reply.usage.cacheRead > 100 && reply.usage.output > 0, JSON.stringify(reply.usage));
assert.ok(replies[1].usage.cacheRead > 100, "the second request begins as the first");
const deltas = events.filter((event) => event.type === "message_update" && event.assistantMessageEvent.type === "text_delta");
assert.ok(deltas.length > 1, "the answer was streamed");
