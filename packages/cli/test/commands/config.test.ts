import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

async function dataDir(t: TestContext): Promise<{ FORKD_DATA_DIR: string }> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-cli-"));
  t.after(() => rm(dir, { recursive: true }));
  return { FORKD_DATA_DIR: dir };
}

test("config shows every setting with its origin, and reports other values of a running daemon", async (t) => {
  const env = await dataDir(t);
  const settings = [
    {
      name: "pool_memory_percent",
      value: 9,
      source: "flag",
      default: 10,
      meaning: "m",
      allowed: "a",
      variable: "V",
    },
  ];
  await using daemon = await openFakeDaemon({ "GET /v1/config": { json: { pid: 4711, settings } } });
  const alone = await runCli(["config"], { env });
  assert.equal(alone.code, 0, alone.stderr);
  assert.match(alone.stdout, /^SETTING +VALUE +FROM +ALLOWED +MEANING\n/);
  assert.match(alone.stdout, /^pool_memory_percent +10 +default +0 to 90 percent +Part of the host/m);
  assert.match(alone.stdout, /^data_dir .* environment /m);
  const both = await runCli(["config"], { env, socket: daemon.socket });
  assert.match(both.stderr, /running daemon \(pid 4711\) uses pool_memory_percent = 9, not 10\./);
  const json = JSON.parse(
    (await runCli(["config", "show", "--json"], { env, socket: daemon.socket })).stdout,
  ) as {
    daemon_pid: number;
    settings: { name: string; running?: number }[];
  };
  assert.equal(json.daemon_pid, 4711);
  assert.deepEqual(
    json.settings.filter(({ running }) => running !== undefined).map(({ name, running }) => [name, running]),
    [["pool_memory_percent", 9]],
  );
});

test("config ignores defaults that depend on how the daemon was started", async (t) => {
  const env = await dataDir(t);
  const log = { name: "log_file", default: "stderr", meaning: "m", allowed: "a", variable: "V" };
  const noteFor = async (setting: object) => {
    const json = { pid: 4711, settings: [{ ...log, ...setting }] };
    await using daemon = await openFakeDaemon({ "GET /v1/config": { json } });
    return (await runCli(["config"], { env, socket: daemon.socket })).stderr;
  };
  assert.doesNotMatch(await noteFor({ value: "/data/daemon.log", source: "default" }), /running daemon/);
  assert.match(await noteFor({ value: "/data/daemon.log", source: "flag" }), /uses log_file = \/data/);
});

test("config set, get, unset and check work on config.json", async (t) => {
  const env = await dataDir(t);
  const file = join(env.FORKD_DATA_DIR, "config.json");
  const set = await runCli(["config", "set", "max_sandboxes", "12"], { env });
  assert.deepEqual([set.code, set.stdout], [0, `Set max_sandboxes = 12 in ${file}\n`], set.stderr);
  assert.equal((await runCli(["config", "get", "max_sandboxes"], { env })).stdout, "12\n");
  const hidden = await runCli(["config", "set", "max_sandboxes", "13"], {
    env: { ...env, FORKD_MAX_SANDBOXES: "5" },
  });
  assert.match(hidden.stderr, /no effect here: FORKD_MAX_SANDBOXES=5/);
  assert.equal((await runCli(["config", "unset", "max_sandboxes"], { env })).code, 0);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")), {});
  const check = await runCli(["config", "check"], { env: { ...env, FORKD_POOLSIZE: "1", FORKD_TOKEN: "x" } });
  assert.match(check.stdout, /^ok: \d+ settings/);
  assert.equal(check.stderr, "FORKD_POOLSIZE is in the environment, but there is no such setting.\n");
});

test("config refuses a value that a daemon would refuse", async (t) => {
  const env = await dataDir(t);
  const wrong = await runCli(["config", "set", "accelerator", "warp"], { env });
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /Cannot set accelerator to "warp"\n {2}It must be auto, kvm or tcg\./);
  const unknown = await runCli(["config", "get", "frob", "--json"], { env });
  assert.equal(unknown.code, 2);
  assert.equal((JSON.parse(unknown.stderr) as { code: string }).code, "invalid_request");
  await writeFile(join(env.FORKD_DATA_DIR, "config.json"), '{"pool_memory_percent": "x"}');
  const check = await runCli(["config", "check"], { env });
  assert.equal(check.code, 2);
  assert.match(check.stderr, /pool_memory_percent \(from file\)/);
});

test("config completes names of settings", async () => {
  const { stdout } = await runCli(["__complete", "--", "config", "set", "max_s"]);
  assert.equal(stdout, "max_sandboxes\n");
});
