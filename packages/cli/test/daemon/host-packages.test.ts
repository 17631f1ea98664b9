/** What `quickstart` and `doctor` do on a host that lacks programs. */
import assert from "node:assert/strict";
import { readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { installAdvice } from "../../src/daemon/host-packages.ts";
import { runCli, type Finished } from "../run-cli.ts";

/** Runs a verb where only `env` is installed, and perhaps an apt-get that notes its arguments and fails. */
async function onBareHost(
  t: TestContext,
  args: readonly string[],
  options: { apt: boolean; env?: Record<string, string> },
): Promise<Finished & { calls: () => Promise<string> }> {
  const dir = await temporaryDirectory(t);
  const log = join(dir, "calls");
  await symlink("/usr/bin/env", join(dir, "env"));
  if (options.apt) {
    const script = `#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >> '${log}'\n[ "$1" = update ]\n`;
    await writeFile(join(dir, "apt-get"), script, { mode: 0o755 });
    await writeFile(join(dir, "apt-cache"), "#!/bin/sh\n", { mode: 0o755 });
  }
  const env = {
    PATH: dir,
    FORKD_DATA_DIR: join(dir, "data"),
    FORKD_RUNTIME_DIR: join(dir, "run"),
    FORKD_SOCKET: "",
    ...options.env,
  };
  return { ...(await runCli(args, { env })), calls: () => readFile(log, "utf8") };
}

test("quickstart names the packages that a host lacks and starts nothing", async (t) => {
  const { code, stdout, stderr } = await onBareHost(t, ["quickstart"], { apt: true });
  assert.deepEqual([code, stdout], [8, ""]);
  assert.match(stderr, /^forkd: This host lacks Debian packages: qemu-system-x86, qemu-utils, .*mmdebstrap/);
  assert.match(
    stderr,
    /Run `forkd quickstart --install`. Or by hand: Run `(sudo )?apt-get install -y --no-install-recommends qemu-system-x86 qemu-utils .*`\.\n$/,
  );
});

test("quickstart names the command that its user types", async (t) => {
  const npx = { npm_lifecycle_event: "npx" };
  const { stderr } = await onBareHost(t, ["quickstart"], { apt: true, env: npx });
  assert.match(stderr, /Run `npx forkd quickstart --install`/);
});

test("quickstart --install runs apt-get and reports its failure", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root: sudo is not in the PATH of this test");
  const { code, stderr, calls } = await onBareHost(t, ["quickstart", "--install"], { apt: true });
  assert.equal(code, 8, stderr);
  assert.match(stderr, /^Installing Debian packages: qemu-system-x86 /);
  assert.match(stderr, /Cannot install Debian packages: apt-get install .* exited with code 1\n/);
  const [update, install, ...rest] = (await calls()).trimEnd().split("\n");
  assert.equal(update, "noninteractive update -qq");
  assert.match(
    install ?? "",
    /^noninteractive install -y --no-install-recommends -qq qemu-system-x86 qemu-utils /,
  );
  assert.deepEqual(rest, []);
});

test("quickstart --install says so when the host has no apt-get", async (t) => {
  const { code, stderr } = await onBareHost(t, ["quickstart", "--install"], { apt: false });
  assert.equal(code, 8);
  assert.match(stderr, /this host has no apt-get\n +Install with the package manager of this host: qemu-/);
  assert.doesNotMatch(stderr, / apt[ .]/);
});

test("quickstart --install is refused for a daemon elsewhere", async (t) => {
  const env = { FORKD_URL: "http://127.0.0.1:1" };
  const { code, stderr } = await onBareHost(t, ["quickstart", "--install"], { apt: true, env });
  assert.equal(code, 2, stderr);
  assert.match(stderr, /--install installs packages on this host, not on the one of FORKD_URL/);
});

test("doctor ends with the one command that installs everything", async (t) => {
  const { code, stdout } = await onBareHost(t, ["doctor", "--no-boot"], { apt: true });
  assert.equal(code, 8);
  const last = stdout.trimEnd().split("\n").at(-1) ?? "";
  assert.match(last, /^Packages are missing\. Run `(sudo )?apt-get install .*qemu-system-x86 .*`\.$/);
  assert.equal(last.split("qemu-system-x86 ").length, 2, "each package is named once");
});

test("installAdvice() uses sudo for an ordinary user", () => {
  assert.equal(installAdvice(["zstd"], 1000), "Run `sudo apt-get install -y --no-install-recommends zstd`.");
  assert.equal(installAdvice(["zstd"], 0), "Run `apt-get install -y --no-install-recommends zstd`.");
});

test("a daemon refuses to start on another processor and names what it needs", async (t) => {
  const dir = await temporaryDirectory(t);
  const preload = join(dir, "arm.mjs");
  await writeFile(preload, 'Object.defineProperty(process, "arch", { value: "arm64" });\n');
  const env = {
    NODE_OPTIONS: `--import ${preload}`,
    FORKD_DATA_DIR: join(dir, "data"),
    FORKD_RUNTIME_DIR: join(dir, "run"),
    FORKD_SOCKET: "",
  };
  const { code, stderr } = await runCli(["up"], { env });
  assert.equal(code, 8, stderr);
  assert.match(stderr, /forkd: Cannot run machines on linux arm64: forkd needs Linux on x86_64\n/);
  assert.match(stderr, /Use a daemon on a host with Linux on x86_64/);
});
