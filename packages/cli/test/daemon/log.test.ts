import assert from "node:assert/strict";
import { appendFile, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { formatRecord, isAtLeast, lastRecords, parseRecord } from "../../src/daemon/log.ts";
import { runCli } from "../run-cli.ts";

async function place(t: TestContext): Promise<{ log: string; env: Record<string, string> }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  return { log: join(dir, "daemon.log"), env: { FORKD_DATA_DIR: dir } };
}

const record = (event: string, level = "info") =>
  `${JSON.stringify({ level, time: "2026-01-02T03:04:05.678Z", event, tag: "a b", n: 1 })}\n`;

test("formatRecord() formats records, and text that is not a record", () => {
  assert.equal(formatRecord(parseRecord(record("x"))), '2026-01-02 03:04:05Z INFO  x tag="a b" n=1');
  assert.equal(formatRecord(parseRecord("Segmentation\tfault")), "- ERROR output Segmentation fault");
  const failed = { level: "error", event: "y", err: { message: "no\u001b[31m", stack: "at z" } };
  assert.equal(formatRecord(failed), '- ERROR y err="no\\u001b[31m"');
  assert.ok(isAtLeast({ level: "error" }, "warn"));
  assert.ok(!isAtLeast({ level: "info" }, "warn"));
  assert.ok(isAtLeast({ level: 50 }, "error"), "an unknown level is not hidden");
});

test("lastRecords() finds records of any length", async (t) => {
  const { log } = await place(t);
  const long = (text: string) => `${JSON.stringify({ event: text, filler: "x".repeat(100_000) })}\n`;
  await writeFile(log, record("a") + long("b") + record("c") + long("d") + record("e"));
  const events = async (count: number) =>
    (await lastRecords(log, count, () => true)).records.map(({ event }) => event);
  assert.deepEqual(await events(1), ["e"]);
  assert.deepEqual(await events(3), ["c", "d", "e"]);
  assert.deepEqual(await events(9), ["a", "b", "c", "d", "e"]);
  assert.deepEqual((await lastRecords(log, 2, ({ filler }) => filler !== undefined)).records.length, 2);
});

test("logs --daemon needs no daemon, filters by level and prints raw records with --json", async (t) => {
  const { log, env } = await place(t);
  await writeFile(log, record("one") + record("two", "warn") + record("three"));
  const all = await runCli(["logs", "--daemon"], { env });
  assert.equal(all.code, 0, all.stderr);
  assert.equal(all.stdout.split("\n").length, 4);
  const warned = await runCli(["logs", "--daemon", "--level", "warn", "--json"], { env });
  assert.equal((JSON.parse(warned.stdout) as { event: string }).event, "two");
  assert.match((await runCli(["logs", "--daemon", "-n", "1"], { env })).stdout, /^\S+ \S+ INFO +three /);
});

test("logs --daemon -f follows the log, also after a rotation", async (t) => {
  const { log, env } = await place(t);
  await writeFile(log, record("first"));
  const seen = new Set<string>();
  const { code, stdout } = await runCli(["logs", "--daemon", "-f"], {
    env,
    onStdout: (text, child) => {
      const once = (word: string, act: () => Promise<void>) => {
        if (!text.includes(word) || seen.has(word)) return;
        seen.add(word);
        act().catch(assert.fail);
      };
      once(" first ", () => appendFile(log, record("second")));
      once(" second ", async () => {
        await rename(log, `${log}.1`);
        await writeFile(log, record("third"));
      });
      once(" third ", async () => void child.kill("SIGINT"));
    },
  });
  assert.equal(code, 130);
  assert.deepEqual(stdout.match(/first|second|third/g), ["first", "second", "third"]);
});

test("logs --daemon without a log exits 3 with a remedy", async (t) => {
  const { env } = await place(t);
  const { code, stderr } = await runCli(["logs", "--daemon"], { env });
  assert.equal(code, 3);
  assert.match(stderr, /journalctl -u forkd/);
  assert.equal((await runCli(["logs"])).code, 2);
  assert.equal((await runCli(["logs", "aa", "--daemon"])).code, 2);
  assert.equal((await runCli(["logs", "--daemon", "--level", "loud"], { env })).code, 2);
});
