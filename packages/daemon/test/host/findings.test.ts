import assert from "node:assert/strict";
import { chmod, stat, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { Scope } from "@forkd/base";
import type { Finding } from "@forkd/runtime";
import { placeFindings } from "../../src/host/findings.ts";
import { loadConfig, type Flags, type Settings } from "../../src/index.ts";
import { temporaryDir } from "../support.ts";

async function settingsIn(dir: string, flags: Flags = {}): Promise<Settings> {
  const places = { data_dir: dir, runtime_dir: join(dir, "run"), listen: "off" };
  return (await loadConfig({ ...places, ...flags }, {})).values;
}

async function findingOf(name: string, settings: Settings, isRunning = true): Promise<Finding | undefined> {
  return (await placeFindings(settings, isRunning)).find((finding) => finding.name === name);
}

test("placeFindings() checks the file that token_file names", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = join(dir, "operator-token");
  await writeFile(join(dir, "token"), "private", { mode: 0o600 });
  await writeFile(file, "shared");
  await chmod(file, 0o644);
  const settings = await settingsIn(dir, { token_file: file });

  const open = await findingOf("token", settings);
  assert.equal(open?.outcome, "warn");
  assert.match(open?.detail ?? "", /operator-token has mode 644/);
  assert.equal(open?.fix, undefined);

  await chmod(file, 0o600);
  const closed = await findingOf("token", settings);
  assert.equal(closed?.outcome, "ok");
  assert.match(closed?.detail ?? "", /operator-token/);

  const missing = await findingOf("token", await settingsIn(dir, { token_file: join(dir, "none") }));
  assert.equal(missing?.outcome, "fail");
});

test("placeFindings() offers to make the daemon's own token private", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const settings = await settingsIn(dir);
  assert.match((await findingOf("token", settings))?.detail ?? "", /none yet/);

  await writeFile(join(dir, "token"), "shared");
  await chmod(join(dir, "token"), 0o644);
  const finding = await findingOf("token", settings);
  assert.equal(finding?.outcome, "warn");
  await finding?.fix?.();
  assert.equal((await stat(join(dir, "token"))).mode & 0o777, 0o600);
  assert.equal((await findingOf("token", settings))?.outcome, "ok");
});

test("placeFindings() says whether the address of listen is free, for IPv4 and IPv6", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const server = net.createServer();
  await new Promise<void>((resolve) => server.listen({ host: "127.0.0.1", port: 0 }, resolve));
  scope.defer(() => new Promise<void>((resolve) => server.close(() => resolve())));
  // A server that listens on TCP has an AddressInfo.
  const { port } = server.address() as net.AddressInfo;
  const taken = await findingOf("address", await settingsIn(dir, { listen: `127.0.0.1:${port}` }), false);
  assert.equal(taken?.outcome, "fail");
  const other = await findingOf("address", await settingsIn(dir, { listen: `[::1]:${port}` }), false);
  assert.ok(other?.outcome === "ok" || /EADDRNOTAVAIL/.test(other?.detail ?? ""), other?.detail);
  assert.equal(
    await findingOf("address", await settingsIn(dir, { listen: "127.0.0.1:0" }), false),
    undefined,
  );
});

test("placeFindings() finds a socket that a daemon left behind, and removes it on request", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const socket = join(dir, "forkd.sock");
  const settings = await settingsIn(dir, { socket });
  assert.match((await findingOf("socket", settings, false))?.detail ?? "", /is free/);
  await writeFile(socket, "");
  const stale = await findingOf("socket", settings, false);
  assert.match(stale?.detail ?? "", /left by a daemon/);
  await stale?.fix?.();
  assert.match((await findingOf("socket", settings, false))?.detail ?? "", /is free/);
});
