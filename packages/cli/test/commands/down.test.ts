import assert from "node:assert/strict";
import { test } from "node:test";
import { readAnswer } from "../../src/commands/down.ts";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const status = { status: 200, json: { pid: 2 ** 22 + 5, sandboxes: 1 } };

test("readAnswer() keeps sandboxes on Enter and takes no other word for an answer", () => {
  const answers = ["", "k", "Keep", "s", " stop ", "c", "cancel", "no", "n", "x", "q", "kill", "st"];
  assert.deepEqual(answers.map(readAnswer), [
    ...["keep", "keep", "keep", "stop", "stop", "cancel", "cancel"],
    ...Array.from({ length: 6 }, () => undefined),
  ]);
});

test("down without a terminal leaves the choice to the daemon's setting", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/status": status,
    "POST /v1/shutdown": { json: { stopped: 0, kept: 1 } },
  });
  const { code, stderr } = await runCli(["down"], daemon);
  assert.equal(code, 0);
  assert.equal(daemon.asked.at(-1)?.body, "{}");
  assert.match(stderr, /^Kept 1 sandbox; the next daemon adopts it\.\nStopped the daemon/);
});

test("down reports workspaces that were saved, that keep running and that were lost", async () => {
  const problem = { id: "sb-1", name: "dev", error: "the disk is full" };
  let answer: object = { stopped: 1, kept: 1, saved: ["other"], unsaved: [problem] };
  await using daemon = await openFakeDaemon({
    "GET /v1/status": status,
    "POST /v1/shutdown": () => ({ json: answer }),
  });
  const kept = await runCli(["down", "--stop"], daemon);
  assert.equal(kept.code, 4);
  assert.match(kept.stderr, /Saved workspace other\.\nStopped 1 sandbox and/);
  assert.match(kept.stderr, /forkd: Workspace dev could not be saved and keeps running: the disk is full/);
  answer = { stopped: 2, kept: 0, lost: [problem] };
  const forced = await runCli(["down", "--force", "--quiet"], daemon);
  assert.equal(forced.code, 0);
  assert.deepEqual(JSON.parse(daemon.asked.at(-1)?.body ?? ""), { sandboxes: "stop", force: true });
  assert.match(forced.stderr, /^forkd: Workspace dev was stopped without being saved: the disk is full\n$/);
});
