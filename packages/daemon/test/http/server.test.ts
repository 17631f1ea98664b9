import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, stat, symlink, unlink, writeFile } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { nullLogger, Scope } from "@forkd/base";
import { loadConfig } from "../../src/settings/load.ts";
import { lockDataDir } from "../../src/host/data-dir-lock.ts";
import { runDaemon } from "../../src/daemon.ts";
import { openServer } from "../../src/http/server.ts";
import { until } from "@forkd/test-support";
import { deferred, handlersWith, send, startServer, temporaryDir } from "../support.ts";

const listener = () => (_: http.IncomingMessage, outgoing: http.ServerResponse) => void outgoing.end("ok");

test("openServer() makes a socket that only its owner can use", async () => {
  await using server = await startServer({});
  assert.equal((await stat(server.socket)).mode & 0o777, 0o600);
  assert.equal((await stat(dirname(server.socket))).mode & 0o777, 0o700);
});

test("openServer() replaces the socket of a dead daemon and refuses that of a live one", async () => {
  await using scope = new Scope();
  const socket = join(await temporaryDir(scope), "forkd.sock");
  // A process that ends without closing leaves the file behind.
  const script = `require("net").createServer().listen(${JSON.stringify(socket)}, () => process.kill(process.pid, "SIGKILL"))`;
  spawnSync(process.execPath, ["-e", script]);
  assert.ok((await stat(socket)).isSocket());
  scope.use(await openServer({ socket, listen: "off", listener }));
  await assert.rejects(openServer({ socket, listen: "off", listener }), { code: "data_dir_in_use" });
  assert.equal((await send(socket, "/")).text, "ok");
});

test("openServer() makes its socket again when the file or its directory is removed", async () => {
  await using scope = new Scope();
  const dir = join(await temporaryDir(scope), "run");
  const socket = join(dir, "forkd.sock");
  const server = await openServer({ socket, listen: "off", listener, lookMs: 10 });
  scope.use(server);
  for (const removed of [dir, socket, dir]) {
    await rm(removed, { recursive: true });
    await until("the socket is there again", () => existsSync(socket));
    assert.equal((await send(socket, "/")).text, "ok");
    assert.equal((await stat(socket)).mode & 0o777, 0o600);
  }
  await server.close(1000);
  assert.equal(existsSync(socket), false, "nothing is left when it closes");
});

test("openServer() names a path that is too long and an address that is taken", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await assert.rejects(openServer({ socket: join(dir, "x".repeat(120)), listen: "off", listener }), {
    code: "host_not_ready",
  });
  const other = net.createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  scope.defer(() => void other.close());
  const { port } = other.address() as net.AddressInfo;
  const taken = openServer({ socket: join(dir, "s"), listen: `127.0.0.1:${port}`, listener });
  await assert.rejects(taken, { code: "host_not_ready" });
  await assert.rejects(stat(join(dir, "s")), { code: "ENOENT" });
});

test("close() lets a running request finish and does not wait for idle connections", async () => {
  const entered = deferred();
  const goOn = deferred();
  await using server = await startServer({
    health: () => ({ ok: true }),
    doctor: async () => {
      entered.resolve();
      await goOn.promise;
      return { ok: true, accelerator: "tcg", checks: [] };
    },
  });
  const agent = new http.Agent({ keepAlive: true });
  const get = (path: string) =>
    new Promise<number>((resolve, reject) => {
      http
        .get({ socketPath: server.socket, path, agent }, (response) => {
          response.resume().once("end", () => resolve(response.statusCode ?? 0));
        })
        .once("error", reject);
    });
  assert.equal(await get("/healthz"), 200);
  const slow = get("/v1/doctor");
  await entered.promise;
  const closed = server.close(3_600_000);
  goOn.resolve();
  assert.equal(await slow, 200);
  await closed;
  agent.destroy();
});

test("close() ends requests that do not finish in time", async () => {
  const entered = deferred();
  const aborted = deferred();
  await using server = await startServer({
    doctor: (_, { signal }) => {
      entered.resolve();
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => {
          aborted.resolve();
          reject(signal.reason as Error);
        }),
      );
    },
  });
  const lost = assert.rejects(send(server.socket, "/v1/doctor"));
  await entered.promise;
  await server.close(1);
  await Promise.all([lost, aborted.promise]);
});

test("lockDataDir() is exclusive by any path, and can be taken again after release", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await symlink(dir, `${dir}-link`);
  scope.defer(() => unlink(`${dir}-link`));
  {
    await using _ = await lockDataDir(dir);
    await assert.rejects(lockDataDir(dir), { code: "data_dir_in_use" });
    await assert.rejects(lockDataDir(`${dir}-link`), { code: "data_dir_in_use" });
  }
  await using _ = await lockDataDir(`${dir}-link`);
  await writeFile(join(dir, "daemon.json"), JSON.stringify({ pid: 4711 }));
  await assert.rejects(lockDataDir(dir), /pid 4711/);
});

test("lockDataDir() is exclusive across network namespaces, as containers have them", async (t) => {
  if (spawnSync("unshare", ["-n", "true"]).status !== 0) return t.skip("needs the right to make a namespace");
  await using scope = new Scope();
  // Longer than the name of a socket may be.
  const dir = join(await temporaryDir(scope), "x".repeat(120));
  await mkdir(dir);
  const module = new URL("../../src/host/data-dir-lock.js", import.meta.url).href;
  const script = `const { lockDataDir } = await import(${JSON.stringify(module)});
    await lockDataDir(${JSON.stringify(dir)}).then(() => console.log("held"), ({ code }) => console.log(code));
    process.kill(process.pid, "SIGKILL");`;
  const elsewhere = () =>
    spawnSync("unshare", ["-n", process.execPath, "--input-type=module", "-e", script])
      .stdout.toString()
      .trim();
  {
    await using _ = await lockDataDir(dir);
    assert.equal(elsewhere(), "data_dir_in_use");
  }
  assert.deepEqual(await readdir(dir), [], "nothing is left of it");
  assert.equal(elsewhere(), "held");
  // That one was killed.
  await using _ = await lockDataDir(dir);
  assert.equal(elsewhere(), "data_dir_in_use");
  assert.deepEqual(await readdir(dir), ["daemon.lock"]);
});

test("lockDataDir() is free when its holder was killed", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const module = new URL("../../src/host/data-dir-lock.js", import.meta.url).href;
  const script = `const { lockDataDir } = await import(${JSON.stringify(module)}); await lockDataDir(${JSON.stringify(dir)}); console.log("held"); setInterval(() => {}, 1000);`;
  const holder = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(holder.stdout, "data");
  await assert.rejects(lockDataDir(dir), { code: "data_dir_in_use" });
  holder.kill("SIGKILL");
  await once(holder, "exit");
  await using _ = await lockDataDir(dir);
});

test("lockDataDir() makes its socket for its owner alone", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  scope.use(await lockDataDir(dir));
  assert.equal((await stat(join(dir, "daemon.lock"))).mode & 0o777, 0o600);
});

test("lockDataDir() lets one of many win", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => lockDataDir(dir)));
  const winners = results.filter((result) => result.status === "fulfilled");
  assert.equal(winners.length, 1);
  for (const winner of winners) scope.use(winner.value);
});

test("runDaemon() reports where it listens, refuses a second daemon, and leaves nothing when it stops", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const config = await loadConfig(
    { data_dir: join(dir, "data"), runtime_dir: join(dir, "run"), listen: "127.0.0.1:0" },
    {},
  );
  const ready = deferred<{ socket: string; url: string | undefined }>();
  let disposed = false;
  const options = { config, log: nullLogger(), version: "1.2.3" };
  const run = runDaemon({
    ...options,
    open: async (stop) => ({
      handlers: handlersWith({
        health: () => ({ ok: true }),
        shutdown: () => {
          stop();
          return { stopped: 0, kept: 0 };
        },
      }),
      [Symbol.asyncDispose]: async () => {
        disposed = true;
      },
    }),
    onReady: ready.resolve,
  });
  const { socket, url } = await ready.promise;
  const record = JSON.parse(await readFile(join(dir, "data", "daemon.json"), "utf8")) as Record<
    string,
    unknown
  >;
  assert.deepEqual(
    { pid: record["pid"], version: record["version"], socket: record["socket"], url: record["url"] },
    { pid: process.pid, version: "1.2.3", socket, url },
  );
  const second = runDaemon({ ...options, open: () => assert.fail("opened twice") });
  await assert.rejects(second, { code: "data_dir_in_use" });
  assert.equal((await send(url ?? "", "/healthz")).status, 200);

  const answer = await send(socket, "/v1/shutdown", { method: "POST" });
  assert.deepEqual(answer.json, { stopped: 0, kept: 0 });
  await run;
  assert.equal(disposed, true);
  for (const file of [socket, join(dir, "data", "daemon.json")]) {
    await assert.rejects(stat(file), { code: "ENOENT" });
  }
});

test("runDaemon() releases everything when it cannot open", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await mkdir(join(dir, "data"));
  const config = await loadConfig(
    { data_dir: join(dir, "data"), runtime_dir: join(dir, "run"), listen: "off" },
    {},
  );
  const options = { config, log: nullLogger(), version: "1", open: () => Promise.reject(new Error("no")) };
  await assert.rejects(runDaemon(options), /no/);
  await using _ = await lockDataDir(join(dir, "data"));
});
