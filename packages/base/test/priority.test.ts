import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { promisify } from "node:util";

const source = new URL("../src/priority.js", import.meta.url).href;
/** Goes first, starts another process and tells what each has. */
const script = `
  const { prioritise, asOrdinary } = await import(${JSON.stringify(source)});
  const { spawn } = await import("node:child_process");
  const { getPriority } = await import("node:os");
  const { readFileSync } = await import("node:fs");
  const session = () => { try { return readFileSync("/proc/self/autogroup", "utf8").trim().split(" ").at(-1); } catch { return null; } };
  const before = session();
  const result = prioritise(Number(process.argv[1]));
  const child = spawn("sleep", ["60"]);
  const inherited = getPriority(child.pid);
  asOrdinary(child.pid);
  const after = getPriority(child.pid);
  child.kill();
  console.log(JSON.stringify({ result, own: getPriority(), inherited, after, before, session: session() }));
`;

type Told = {
  result: { nice: number; autogroup?: number; reason?: string };
  own: number;
  inherited: number;
  after: number;
  before: string | null;
  session: string | null;
};

async function run(nice: number, ...prefix: string[]): Promise<Told> {
  const [program, ...args] = [...prefix, process.execPath, "--input-type=module", "-e", script];
  const { stdout } = await promisify(execFile)(program, [...args, "--", String(nice)]);
  return JSON.parse(stdout) as Told;
}

const sysNice = 23n;
const capabilities = /^CapEff:\s*([0-9a-f]+)/m.exec(readFileSync("/proc/self/status", "latin1"))?.[1];
const mayGoFirst = (BigInt(`0x${capabilities}`) >> sysNice) % 2n === 1n;

test("asOrdinary() gives started programs the priority from before", async () => {
  // Anybody may go after others.
  const nice = mayGoFirst ? -5 : 5;
  const { result, own, inherited, after } = await run(nice);
  assert.deepEqual([result.nice, own, inherited, after], [nice, nice, nice, 0]);
  assert.equal(result.reason, undefined);
});

test("prioritise() leaves a session that is shared with others unchanged", async () => {
  const { result, before, session } = await run(mayGoFirst ? -5 : 5);
  assert.equal(result.autogroup, undefined);
  assert.equal(session, before);
});

test("prioritise() raises the session that the process leads", async () => {
  const nice = mayGoFirst ? -5 : 5;
  const { result, session } = await run(nice, "setsid", "--wait");
  if (!existsSync("/proc/self/autogroup")) return assert.equal(result.autogroup, undefined);
  assert.equal(result.autogroup, nice);
  assert.equal(session, String(nice));
});

test("prioritise() changes nothing without the right to, and says why", async () => {
  const prefix = mayGoFirst
    ? ["setpriv", "--bounding-set", "-sys_nice", "--inh-caps", "-sys_nice", "--"]
    : [];
  const { result, own, after } = await run(-5, ...prefix);
  assert.match(result.reason ?? "", /CAP_SYS_NICE/);
  assert.deepEqual([result.nice, own, after], [0, 0, 0]);
});
