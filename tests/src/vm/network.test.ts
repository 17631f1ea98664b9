/** The guest's side of the network, on a device that is connected to nothing. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { mkdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { nullLogger, runProgram } from "@forkd/base";
import type { AgentClient, AgentProcess } from "@forkd/machine";
import { branch, createSnapshot, type Runtime } from "@forkd/runtime";
import { until } from "@forkd/test-support";
import { forkChild, openTestRuntime, type TestRuntime } from "../support/runtime.ts";

const log = nullLogger();
let opened: TestRuntime;
let runtime: Runtime;
before(async () => {
  opened = await openTestRuntime(["tiny"]);
  ({ runtime } = opened);
});
after(() => opened[Symbol.asyncDispose]());

const child = (tag?: string) => forkChild(runtime, tag);

async function sh(agent: AgentClient, command: string): Promise<string> {
  let text = "";
  const process = agent.start(
    { argv: ["sh", "-c", command] },
    { onOutput: ({ bytes }) => void (text += bytes.toString()) },
  );
  await process.exit;
  return text;
}

/** The routes of eth0: destination and gateway as the kernel prints them. */
async function routes(agent: AgentClient): Promise<string[]> {
  const lines = (await sh(agent, "cat /proc/net/route")).trim().split("\n").slice(1);
  return lines.map((line) => line.split(/\s+/).slice(0, 3).join(" ")).sort();
}

const bothRoutes = ["eth0 00000000 0202000A", "eth0 0002000A 00000000"];

test("a child has an address, routes and a name server, and no IPv6 but on the loopback", async () => {
  const { agent, id } = await child();
  assert.deepEqual(await routes(agent), bothRoutes);
  assert.match(await sh(agent, "cat /proc/net/fib_trie"), /10\.0\.2\.15\n +\/32 host LOCAL/);
  assert.match(await sh(agent, "cat /etc/resolv.conf"), /^nameserver 10\.0\.2\.2\n/);
  assert.match(await sh(agent, "cat /proc/net/if_inet6"), /^0{31}1 .* lo\n$/);
  assert.equal(await sh(agent, "cat /sys/class/net/eth0/address"), "02:fc:00:00:00:01\n");
  await runtime.registry.remove(id);
});

test("setNetwork() takes the routes away, so that a dial fails at once, and restores them", async () => {
  const { agent, id } = await child();
  for (let round = 0; round < 2; round++) {
    await agent.setNetwork(false);
    assert.deepEqual(await routes(agent), []);
    for (const to of ["203.0.113.1", "10.0.2.2"]) {
      assert.match(await sh(agent, `nc ${to} 80 2>&1`), /Network is unreachable/);
    }
    await agent.setNetwork(true);
    assert.deepEqual(await routes(agent), bothRoutes);
  }
  await runtime.registry.remove(id);
});

/** A connection between two ends in the guest, echoed by a server; `/tmp/ended-PORT` appears when it ends. */
async function connection(
  agent: AgentClient,
  to: { address: string; port: number },
  onText: (text: string) => void = () => undefined,
): Promise<AgentProcess> {
  const { address, port } = to;
  const argv = ["nc", "-l", "-p", String(port), "-e", "cat"];
  await agent.start({ argv, detached: true }).started;
  const listening = `:${port.toString(16).toUpperCase().padStart(4, "0")} `;
  await until("the server listens", async () => (await sh(agent, "cat /proc/net/tcp6")).includes(listening));
  return agent.start(
    { argv: ["sh", "-c", `nc ${address} ${port}; echo ended > /tmp/ended-${port}`], stdin: true },
    { onOutput: ({ bytes }) => onText(bytes.toString()) },
  );
}

test("a branch aborts connections in the child and leaves those of the source, and the loopback's", async () => {
  const source = await child();
  const received = { 7000: "", 7001: "" };
  const open = (address: string, port: 7000 | 7001) =>
    connection(source.agent, { address, port }, (text) => void (received[port] += text));
  const remote = await open("10.0.2.15", 7000);
  const local = await open("127.0.0.1", 7001);
  const echoes = async (text: string): Promise<void> => {
    await Promise.all([remote, local].map((each) => each.write(Buffer.from(`${text}\n`))));
    await until("both connections answer", () =>
      Object.values(received).every((all) => all.endsWith(`${text}\n`)),
    );
  };
  await echoes("before");
  await branch(
    runtime,
    { id: source.id, tag: "connected", wait: true, n: 0, vary: [], env: {}, labels: {} },
    { log },
  );

  const { agent, id } = await child("connected");
  await until("the connection ends", async () => (await sh(agent, "cat /tmp/ended-7000")) === "ended\n");
  assert.match(await sh(agent, "ls /tmp"), /^ended-7000\n$/);
  // The loopback's connection works: both of its ends are in the child.
  let text = "";
  const again = agent.attach(local.id, [0, 0, 0], {
    onOutput: ({ bytes }) => void (text += bytes.toString()),
  });
  await again.started;
  await again.write(Buffer.from("in the child\n"));
  await until("the loopback answers", () => text.endsWith("in the child\n"));

  await echoes("after");
  assert.equal(await sh(source.agent, "ls /tmp"), "");
  await runtime.registry.remove(id);
  await runtime.registry.remove(source.id);
});

test("afterFork() reports the connections that it aborted and brings the network up or down", async () => {
  const { agent, id } = await child();
  const spec = { entropy: Buffer.alloc(64, 1), realtimeNs: () => BigInt(Date.now()) * 1_000_000n };
  const missing = { connections: false, device: false };
  const none = { destroyed: 0, missing };
  assert.deepEqual(await agent.afterFork({ ...spec, network: "down", requireConnections: true }), none);
  assert.deepEqual(await routes(agent), []);
  assert.deepEqual(await agent.afterFork({ ...spec, skipConnections: true }), none);
  assert.deepEqual(await routes(agent), []);
  assert.deepEqual(await agent.afterFork({ ...spec, network: "up" }), none);
  assert.deepEqual(await routes(agent), bothRoutes);

  let text = "";
  const open = await connection(agent, { address: "10.0.2.15", port: 7000 }, (more) => void (text += more));
  await open.write(Buffer.from("x\n"));
  await until("the connection answers", () => text === "x\n");
  assert.deepEqual(await agent.afterFork({ ...spec, skipConnections: true }), none);
  const { destroyed } = await agent.afterFork(spec);
  // The reset of one end can reach the other before its turn.
  assert.ok(destroyed === 1 || destroyed === 2, String(destroyed));
  await runtime.registry.remove(id);
});

test("an image gets the name server and the certificates, whatever it has in their places", async () => {
  const root = join(opened.dir, "root");
  await mkdir(root);
  await runProgram("debugfs", ["-R", `rdump / ${root}`, join(opened.dir, "data/snapshots/tiny/rootfs.ext4")]);
  await rm(join(root, "etc/resolv.conf"), { force: true });
  await symlink("../run/systemd/resolve/stub-resolv.conf", join(root, "etc/resolv.conf"));
  await mkdir(join(root, "etc/ssl/certs"), { recursive: true });
  await writeFile(join(root, "etc/ssl/certs/ca-certificates.crt"), "of the image\n");
  await writeFile(join(root, "etc/ssl/cert.pem"), "of the image\n");
  const { caBundle } = runtime.network;
  assert.ok(caBundle);
  const request = { tag: "trusting", rootfs: root, memory_mib: 96, disk_mib: 64, force: false };
  await createSnapshot(runtime, request, { log, onProgress: () => undefined });

  const { agent, id } = await child("trusting");
  assert.match(await sh(agent, "cat /etc/resolv.conf"), /^nameserver 10\.0\.2\.2\n/);
  const places = ["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"];
  for (const place of [...places, "/run/forkd/ca-bundle.pem", "/usr/local/share/ca-certificates/forkd.crt"]) {
    assert.equal(await sh(agent, `cat ${place}`), caBundle.toString(), place);
  }
  // What update-ca-certificates does.
  const install = `cd /etc/ssl/certs && echo new > x && busybox mv -f x ca-certificates.crt && cat ${places[0]}`;
  assert.equal(await sh(agent, install), "new\n");
  await runtime.registry.remove(id);
});
