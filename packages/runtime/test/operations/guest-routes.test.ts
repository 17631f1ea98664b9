/** Which operations call into the guest is said in the table of routes; here each is seen to do so. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { isSandbox, routes, type Route, type RouteName } from "@forkd/contract";
import * as runtimeIndex from "../../src/index.ts";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { context, forkableRuntime, forkRequest } from "../support.ts";

/** Input of each route beside the id of the sandbox. */
const inputs: Partial<Record<RouteName, object>> = {
  exec: { args: ["true"], timeout_secs: 1 },
  attachExec: { exec_id: 1 },
  execInput: { exec_id: 1, data: "x" },
  execSignal: { exec_id: 1, signal: "TERM" },
  execResize: { exec_id: 1, rows: 1, cols: 1 },
  eval: { code: "1", timeout_secs: 1 },
  serviceLogs: { name: "web" },
  dropContext: { name: "a" },
  readFile: { path: "/f" },
  writeFile: { path: "/f", content: (async function* () {})() },
  listFiles: { path: "/" },
  statFile: { path: "/f" },
  makeDirectory: { path: "/d" },
  moveFile: { from: "/a", to: "/b" },
  removeFile: { path: "/f" },
  chmodFile: { path: "/f", mode: 0o600 },
};

type Operation = (runtime: unknown, input: object, given: object) => Promise<unknown>;
// By name: the operation of a route has the name of the route, but for `eval`, which is reserved.
const operationOf = (name: string): Operation | undefined =>
  (runtimeIndex as unknown as Record<string, Operation | undefined>)[name === "eval" ? "evaluate" : name];

/** Routes of one sandbox that answer without a call into the guest. */
const others = (["getSandbox", "logs", "ping", "setTimeouts"] as const).map((name) => name as RouteName);

const intoGuest = (Object.entries(routes) as [RouteName, Route][])
  .filter(([, route]) => route.intoGuest)
  .map(([name]) => name);

for (const name of [...intoGuest, ...others]) {
  const resumes = routes[name].intoGuest;
  test(`${name} ${resumes ? "resumes" : "does not resume"} a paused sandbox with auto-resume`, async (t) => {
    const { runtime, engine } = await forkableRuntime(t);
    const [entry] = await fork(runtime, forkRequest({ auto_resume: true }), context);
    assert.ok(entry && isSandbox(entry));
    await pause(runtime, { id: entry.id }, context);
    const before = engine.asked;
    engine.script = () => ({ failPrepare: "no VMM" });
    const operation = operationOf(name === "logs" ? "consoleLog" : name);
    assert.ok(operation, `the runtime has no operation ${name}`);
    const failure: unknown = await Promise.resolve()
      .then(() => operation(runtime, { id: entry.id, ...inputs[name] }, context))
      .catch((error: unknown) => error);
    if (resumes) assert.match(String(failure), /no VMM/);
    assert.equal(engine.asked - before, resumes ? 1 : 0);
  });
}
