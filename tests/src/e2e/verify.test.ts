/**
 * Fork safety on real VMs: the shared snapshots pass, snapshots that are wrong on purpose do not, and a snapshot
 * that requires checks is forked only after they have passed.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import type { HazardId, HazardOutcome, VerifyReport } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";
import { rejectsWith, until } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({
    snapshots: ["python", "node", "tiny"],
    env: { FORKD_POOL_MEMORY_PERCENT: "10" },
  });
});
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

function outcomes({ hazards }: VerifyReport): Partial<Record<HazardId, HazardOutcome>> {
  return Object.fromEntries(hazards.map(({ id, outcome }) => [id, outcome]));
}

function detailOf({ hazards }: VerifyReport, id: HazardId): string {
  return hazards.find((hazard) => hazard.id === id)?.detail ?? "";
}

/** Only the given snapshots and no sandboxes: a verification removes what it made. */
async function assertNothingLeft(...tags: string[]): Promise<void> {
  assert.deepEqual(await daemon.forkd.sandboxes.list().all(), []);
  const known = new Set(["node", "python", "tiny", ...tags]);
  const found = (await daemon.forkd.snapshots.list().all()).map(({ tag }) => tag);
  assert.deepEqual(
    found.filter((tag) => !known.has(tag)),
    [],
  );
  assert.deepEqual(await readdir(join(daemon.dataDir, "verified/runs")), []);
}

/** Whether guests have a network device, which depends on how their snapshot was made. */
async function hasDevice(tag: string): Promise<boolean> {
  await using sandbox = await daemon.forkd.create(tag);
  return (await sandbox.commands.run(["test", "-e", "/sys/class/net/eth0"])).exitCode === 0;
}

test("verify() passes a snapshot: forked, pooled and branched children", async () => {
  const seen: string[] = [];
  const onNetwork = (await hasDevice("python")) ? "pass" : "not_applicable";
  const report = await daemon.forkd.snapshots.verify("python", { onHazard: ({ id }) => seen.push(id) });
  assert.deepEqual(
    outcomes(report),
    {
      entropy: "pass",
      prng: "pass",
      identity: "pass",
      clock: "pass",
      network: onNetwork,
      connections: onNetwork,
      secrets: "pass",
      disk: "pass",
      pids: "pass",
      compatibility: "pass",
      restart: "pass",
      instant: "pass",
    },
    JSON.stringify(report.hazards, null, 2),
  );
  assert.equal(report.outcome, "pass");
  assert.deepEqual([report.children.forked + report.children.pooled, report.children.branched], [4, 2]);
  assert.ok(report.children.pooled > 0);
  assert.equal(seen.length, 12);
  const { verification } = await daemon.forkd.snapshots.info("python");
  assert.deepEqual([verification?.outcome, verification?.current], ["pass", true]);
  await assertNothingLeft();
});

test("verify() passes a warm Node.js", async () => {
  // The other checks do not ask the interpreter.
  const only: HazardId[] = ["entropy", "prng", "clock", "secrets", "pids"];
  const report = await daemon.forkd.snapshots.verify("node", { only });
  const expected = Object.fromEntries(only.map((id) => [id, "pass"]));
  assert.deepEqual(outcomes(report), expected, JSON.stringify(report.hazards, null, 2));
  assert.ok(report.children.branched > 0);
  await assertNothingLeft();
});

test("verify() says what it could not check in an image without interpreters", async () => {
  const report = await daemon.forkd.snapshots.verify("tiny", { only: ["prng", "pids", "clock"], n: 2 });
  assert.deepEqual(outcomes(report), { prng: "not_applicable", clock: "pass", pids: "pass" });
  assert.match(detailOf(report, "prng"), /no warm interpreter/);
  assert.match(detailOf(report, "pids"), /not checked: no mktemp/);
});

test("verify() finds an interpreter that is not re-seeded, and generators of the user", async () => {
  await using source = await daemon.forkd.create("python");
  await source.eval("import random; own = random.Random(7); numpy.random.seed(7)");
  await source.branch({ tag: "own-generator" });
  const warned = await daemon.forkd.snapshots.verify("own-generator", { only: ["prng"], n: 2 });
  assert.deepEqual(outcomes(warned), { prng: "warn" });
  assert.match(detailOf(warned, "prng"), /random\.Random 1/);
  await source.eval("import forkd; forkd._seed = lambda entropy, timeout: None");
  await source.branch({ tag: "not-seeded" });
  const failed = await daemon.forkd.snapshots.verify("not-seeded", { only: ["prng", "entropy"], n: 2 });
  assert.deepEqual(outcomes(failed), { entropy: "pass", prng: "fail" });
  assert.match(detailOf(failed, "prng"), /drew the same from random of python/);
  assert.equal(failed.outcome, "fail");
});

test("verify() finds equal numbers of the kernel, equal identities and host keys", async () => {
  await using source = await daemon.forkd.create("python");
  await sh(source, "mkdir -p /etc/ssh; echo key > /etc/ssh/ssh_host_rsa_key");
  await source.branch({ tag: "host-key" });
  const warned = await daemon.forkd.snapshots.verify("host-key", { only: ["identity"], n: 2 });
  assert.deepEqual(outcomes(warned), { identity: "warn" });
  assert.match(detailOf(warned, "identity"), /ssh_host_rsa_key/);
  await sh(
    source,
    "echo 8c7b2f3e-0000-4000-8000-000000000001 > /root/same; for f in /proc/sys/kernel/random/uuid /etc/machine-id; do mount --bind /root/same $f; done",
  );
  await source.branch({ tag: "same" });
  const failed = await daemon.forkd.snapshots.verify("same", { only: ["entropy", "identity"], n: 2 });
  assert.deepEqual(outcomes(failed), { entropy: "fail", identity: "fail" });
});

test("verify() warns of secrets in files and environments, and never shows them", async () => {
  await using source = await daemon.forkd.create("tiny");
  const token = "q7Zt1vX9bN3mK5wR8yL2";
  await source.files.write("/root/api-token", `${token}\n`);
  await source.commands.start(["sleep", "600"], { env: { DB_PASSWORD: token, API_KEY: "changeme" } });
  await source.branch({ tag: "with-token" });
  const report = await daemon.forkd.snapshots.verify("with-token", { only: ["secrets"], n: 2 });
  assert.deepEqual(outcomes(report), { secrets: "warn" });
  assert.match(detailOf(report, "secrets"), /DB_PASSWORD of sleep.*\/root\/api-token/);
  assert.ok(!detailOf(report, "secrets").includes("API_KEY"));
  assert.ok(!JSON.stringify(report).includes(token));
});

/** Gives the guest a device with the name and the address that forkd uses, without a network behind it. */
const makeDevice = `
import fcntl, socket, struct
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def request(name, data):
    return name.ljust(16, b'\\0') + data.ljust(24, b'\\0')
def address(text):
    return struct.pack('=HH4s', socket.AF_INET, 0, socket.inet_aton(text))
fcntl.ioctl(control, 0x8914, request(b'lo', struct.pack('h', 0)))
fcntl.ioctl(control, 0x8923, request(b'lo', b'eth0'))
fcntl.ioctl(control, 0x8916, request(b'eth0', address('10.0.2.15')))
fcntl.ioctl(control, 0x891c, request(b'eth0', address('255.255.255.0')))
fcntl.ioctl(control, 0x8914, request(b'eth0', struct.pack('h', 0x41)))
`;

test("the checks of the network run where the guest has a device", async () => {
  await using source = await daemon.forkd.create("python");
  if (!(await hasDevice("python"))) await source.commands.run(["python3", "-c", makeDevice], { check: true });
  await source.branch({ tag: "device" });
  const only: HazardId[] = ["network", "connections"];
  const report = await daemon.forkd.snapshots.verify("device", { only, n: 2 });
  assert.equal(outcomes(report).network, "pass", detailOf(report, "network"));
  assert.notEqual(outcomes(report).connections, "not_applicable");
});

test("verify() leaves nothing when its caller disconnects", async () => {
  const abort = new AbortController();
  const done = daemon.forkd.snapshots.verify("tiny", {
    signal: abort.signal,
    onHazard: () => abort.abort(),
  });
  await rejectsWith(done, "cancelled");
  await until(
    "the children are removed",
    async () => (await daemon.forkd.sandboxes.list().all()).length === 0,
  );
  await until(
    "the branch is removed",
    async () => (await readdir(join(daemon.dataDir, "verified/runs"))).length === 0,
  );
  assert.ok((await daemon.forkd.snapshots.list().all()).every(({ tag }) => !tag.startsWith("verify-")));
});

/** Uses the root file system of the snapshot "python", which is in the cache of images. */
async function makeRecipe(name: string, more: object): Promise<string> {
  const dir = join(daemon.dir, name);
  await mkdir(dir);
  const base = { suite: "bookworm", packages: ["python3", "python3-numpy"] };
  await writeFile(join(dir, "recipe.json"), JSON.stringify({ version: 1, base, memory_mib: 128, ...more }));
  return dir;
}

test("a recipe that requires checks is forked only with their result", async () => {
  const { forkd } = daemon;
  const recipe = await makeRecipe("strict", { require: ["entropy", "identity", "disk", "network"] });
  const steps: string[] = [];
  await forkd.snapshots.build({ tag: "strict", recipe }, { onStep: ({ step }) => steps.push(step) });
  assert.ok(steps.includes("verify"));
  const { id, require, verification } = await forkd.snapshots.info("strict");
  assert.deepEqual(require, ["entropy", "identity", "disk", "network"]);
  assert.deepEqual(verification?.hazards.map((hazard) => hazard.id).sort(), [...require].sort());
  await using sandbox = await forkd.create("strict");
  const { children } = await sandbox.branch({ tag: "strict-branch", n: 1 });
  assert.equal(children.length, 1);
  const path = join(daemon.dataDir, "verified", `${id}.json`);
  await writeFile(path, (await readFile(path, "utf8")).replace('"pass"', '"paws"'));
  await rejectsWith(forkd.create("strict"), "unsafe_snapshot", /cannot be used/);
  await rm(path);
  await rejectsWith(forkd.create("strict"), "unsafe_snapshot", /no result/);
  await rejectsWith(forkd.create("strict-branch"), "unsafe_snapshot", /no result/);
  await forkd.snapshots.verify("strict", { n: 2, only: require });
  await using again = await forkd.create("strict-branch");
  assert.equal(again.info.state, "running");
});

test("a build whose required check does not pass fails, and its snapshot cannot be forked", async () => {
  const { forkd } = daemon;
  const env = { API_TOKEN: "q7Zt1vX9bN3mK5wR8yL2" };
  const recipe = await makeRecipe("leaky", { require: ["secrets"], env });
  const built = forkd.snapshots.build({ tag: "leaky", recipe });
  await rejectsWith(built, "unsafe_snapshot", /variable API_TOKEN of the snapshot/);
  await rejectsWith(forkd.create("leaky"), "unsafe_snapshot", /secrets/);
});

test("forkd verify prints the report and exits with 10 if a check fails", async () => {
  await using source = await daemon.forkd.create("tiny");
  await sh(source, "echo 8c7b2f3e-0000-4000-8000-000000000001 > /root/same");
  await sh(source, "busybox mount -o bind /root/same /proc/sys/kernel/random/uuid");
  await source.branch({ tag: "unsafe" });
  const failed = await cli(["verify", "unsafe", "--only", "entropy,compatibility", "-n", "2"]);
  assert.equal(failed.code, 10, failed.text);
  assert.match(failed.text, /^HAZARD +RESULT +FOUND/m);
  assert.match(failed.text, /^entropy +FAIL +child 1 and child 1 drew the same/m);
  assert.match(failed.text, /^1 passed, 0 warnings, 1 failure, 0 not applicable/m);
  const passed = await cli(["verify", "tiny", "--only", "entropy", "--json"]);
  assert.equal(passed.code, 0, passed.text);
  assert.equal((JSON.parse(passed.text) as VerifyReport).outcome, "pass");
  assert.match((await cli(["info", "unsafe"])).text, /^verified +fail, .*\n +failed +entropy$/m);
});

/** Runs the CLI; its notes and progress are left out. */
async function cli(args: readonly string[]): Promise<{ code: number | null; text: string }> {
  const child = spawn(process.execPath, [cliPath, ...args, "--quiet"], {
    env: daemon.env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let text = "";
  child.stdout.on("data", (data: Buffer) => (text += data.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, text };
}
