import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const service = {
  name: "web",
  state: "running",
  exec_id: 7,
  pid: 12,
  command: "/usr/bin/python3",
  stdout_bytes: 2048,
  stderr_bytes: 0,
};
const answers = {
  "GET /v1/sandboxes": { json: [sandbox(idA)] },
  [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
  [`GET /v1/sandboxes/${idA}/services`]: {
    json: [service, { ...service, name: "worker", state: "exited", exit_code: 3 }],
  },
  [`GET /v1/sandboxes/${idA}/services/web/logs`]: { bytes: "listening\n" },
};

test("logs --services lists names and states, and --service prints the output of one", async () => {
  await using daemon = await openFakeDaemon(answers);
  const list = await runCli(["logs", idA, "--services"], { socket: daemon.socket });
  assert.equal(list.code, 0, list.stderr);
  assert.match(list.stdout, /^NAME +STATE +PID +OUTPUT +COMMAND\nweb +running +12 /);
  assert.match(list.stdout, /\nworker +exited \(3\) /);
  const log = await runCli(["logs", idA, "--service", "web", "--tail", "5"], { socket: daemon.socket });
  assert.deepEqual([log.code, log.stdout], [0, "listening\n"]);
  assert.match(daemon.asked.at(-1)?.path ?? "", /services\/web\/logs\?tail=5$/);
  const json = await runCli(["logs", idA, "--service", "web", "--json"], { socket: daemon.socket });
  assert.deepEqual(JSON.parse(json.stdout), { type: "service", service: "web", data: "listening\n" });
});

test("logs refuses options that exclude each other", async () => {
  await using daemon = await openFakeDaemon(answers);
  for (const args of [
    ["--daemon", "--service", "web"],
    [idA, "--services", "--follow"],
  ]) {
    assert.equal((await runCli(["logs", ...args], { socket: daemon.socket })).code, 2, args.join(" "));
  }
});

test("completion of --service names the services of the sandbox on the line", async () => {
  await using daemon = await openFakeDaemon(answers);
  const done = await runCli(["__complete", "--", "logs", idA, "--service", "w"], { socket: daemon.socket });
  assert.equal(done.stdout, "web\nworker\n");
});
