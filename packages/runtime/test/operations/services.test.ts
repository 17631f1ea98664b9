import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { LastLines } from "../../src/guest/last-lines.ts";
import { serviceLabel, serviceNames, servicesAmong } from "../../src/guest/service-names.ts";
import { fork } from "../../src/operations/fork.ts";
import { listServices, serviceLogs } from "../../src/operations/services.ts";
import type { FakeProcess } from "../fakes/guest.ts";
import { context, forkableRuntime, forkRequest, rejectsWith, type TestRuntime } from "../support.ts";

async function withProcesses(
  t: TestContext,
  processes: readonly FakeProcess[],
): Promise<{ runtime: TestRuntime["runtime"]; id: string }> {
  const { runtime, engine } = await forkableRuntime(t);
  engine.script = () => ({ processes });
  const [entry] = await fork(runtime, forkRequest(), context);
  assert.ok(entry && isSandbox(entry));
  return { runtime, id: entry.id };
}

async function textOf(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  let text = "";
  for await (const chunk of chunks) text += Buffer.from(chunk).toString();
  return text;
}

test("serviceNames() gives each service its own name, by its program where the recipe has none", () => {
  const services = [
    { argv: ["/usr/bin/redis-server", "--port", "1"] },
    { argv: ["redis-server", "--port", "2"] },
    { name: "web", argv: ["python3", "-m", "http.server"] },
    { argv: ["web"] },
    { argv: ["/opt/my app/run me"] },
    { argv: ["---"] },
  ];
  assert.deepEqual(serviceNames(services), [
    "redis-server",
    "redis-server-2",
    "web",
    "web-2",
    "run-me",
    "service",
  ]);
  assert.deepEqual(serviceNames([{ argv: ["redis"] }, { argv: ["web"] }], ["web"]), ["redis", "web-2"]);
});

test("servicesAmong() knows services by their labels, also by those of earlier versions", () => {
  const labels = [serviceLabel("web"), "kernel:python", "", "service:/usr/bin/redis", "service:/bin/redis"];
  const found = servicesAmong(labels.map((label) => ({ label })));
  assert.deepEqual(
    found.map(({ name }) => name),
    ["web", "redis", "redis-2"],
  );
});

test("listServices() lists the services of a fork and how they ended", async (t) => {
  const { runtime, id } = await withProcesses(t, [
    { id: 1, label: "service:web", stdout: "hello\n" },
    { id: 2, label: "kernel:python", stdout: "" },
    { id: 3, label: "", stdout: "a command" },
    { id: 4, label: "service:worker", stdout: "", exitCode: 3 },
  ]);
  const services = await listServices(runtime, { id }, context);
  assert.deepEqual(
    services.map(({ name, state, stdout_bytes, exit_code }) => ({ name, state, stdout_bytes, exit_code })),
    [
      { name: "web", state: "running", stdout_bytes: 6, exit_code: undefined },
      { name: "worker", state: "exited", stdout_bytes: 0, exit_code: 3 },
    ],
  );
});

test("serviceLogs() returns what the guest has kept, and ends without follow", async (t) => {
  const { runtime, id } = await withProcesses(t, [
    { id: 1, label: "service:web", stdout: "one\ntwo\nthree\n", dropped: 1000 },
    { id: 2, label: "service:worker", stdout: "bye\n", exitCode: 0 },
    { id: 3, label: "service:quiet", stdout: "" },
  ]);
  const read = async (name: string, tail?: number) =>
    textOf(await serviceLogs(runtime, { id, name, tail }, context));
  assert.equal(await read("web"), "one\ntwo\nthree\n");
  assert.equal(await read("web", 2), "two\nthree\n", "the service can be read again");
  assert.equal(await read("worker"), "bye\n");
  assert.equal(await read("quiet"), "");
  await rejectsWith(read("wbe"), "exec_not_found", /Cannot find service "wbe".*web, worker, quiet/);
});

test("serviceLogs() follows a service until its caller leaves", async (t) => {
  const { runtime, id } = await withProcesses(t, [{ id: 1, label: "service:web", stdout: "up\n" }]);
  const leave = new AbortController();
  const chunks = await serviceLogs(
    runtime,
    { id, name: "web", follow: true },
    { ...context, signal: leave.signal },
  );
  const iterator = chunks[Symbol.asyncIterator]();
  const first = await iterator.next();
  assert.equal(Buffer.from(first.value as Uint8Array).toString(), "up\n");
  const second = iterator.next();
  leave.abort();
  await second.catch(() => undefined);
  assert.equal(await textOf(await serviceLogs(runtime, { id, name: "web" }, context)), "up\n");
});

test("LastLines keeps the last lines, with or without a newline at the end", () => {
  const last = (lines: number, ...texts: string[]): string => {
    const kept = new LastLines(lines);
    for (const text of texts) kept.push(Buffer.from(text));
    return kept.bytes().toString();
  };
  assert.equal(last(1, "a\nb\n"), "b\n");
  assert.equal(last(2, "a\n", "b\nc"), "b\nc");
  assert.equal(last(5, "a\nb\n"), "a\nb\n");
  assert.equal(last(1, "\n"), "\n");
  assert.equal(last(1), "");
});
