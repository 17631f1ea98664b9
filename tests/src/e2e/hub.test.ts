/** Snapshots that travel between two daemons through a real registry. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { promisify } from "node:util";
import type { Sandbox } from "@forkd/sdk";
import { gate, rejectsWith, startRegistry, type TestRegistry } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";
import { startProxy } from "../support/registry-proxy.ts";
import { sh } from "../support/sandboxes.ts";

const run = promisify(execFile);

/** Where snapshots come from. It packs each only once. */
let here: TestDaemon;
before(async () => {
  here = await startDaemon({ snapshots: ["tiny", "python"] });
});
after(() => here[Symbol.asyncDispose]());

/** A host without snapshots. */
async function otherHost(t: TestContext): Promise<TestDaemon> {
  const daemon = await startDaemon();
  t.after(() => daemon[Symbol.asyncDispose]());
  return daemon;
}

/** The file of a blob in the data of the registry. */
function blobFile({ directory }: TestRegistry, digest: string): string {
  const hex = digest.replace("sha256:", "");
  return join(directory, "data/docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
}

/** The manifest that a push made, and its largest layer. */
function largestLayer(registry: TestRegistry, digest: string): { digest: string; size: number } {
  const manifest = JSON.parse(readFileSync(blobFile(registry, digest), "utf8")) as {
    layers: { digest: string; size: number }[];
  };
  const [largest] = manifest.layers.toSorted((a, b) => b.size - a.size);
  assert.ok(largest);
  return largest;
}

/** Hidden directories below the snapshots, such as those of a pull. */
function drafts({ dataDir }: TestDaemon): string[] {
  return readdirSync(join(dataDir, "snapshots")).filter((name) => name.startsWith("."));
}

async function answers(daemon: TestDaemon, tag: string, expected: string): Promise<void> {
  const child = await daemon.forkd.create(tag);
  assert.equal(await sh(child, "cat /etc/marker"), expected);
  await child.kill();
}

test("a snapshot and a branch of it travel, and only what is missing is moved", async (t) => {
  const registry = await startRegistry(t);
  const base = `${registry.address}/team/tiny:v1`;
  const steps: string[] = [];
  const pushed = await here.forkd.hub.push("tiny", base, { onProgress: ({ step }) => steps.push(step) });
  assert.equal(pushed.reference, base);
  assert.ok(pushed.movedBytes >= pushed.totalBytes * 0.99);
  assert.deepEqual([...new Set(steps)], ["check", "pack", "send"]);

  const again = await here.forkd.hub.push("tiny", base);
  assert.equal(again.digest, pushed.digest);
  assert.equal(again.movedBytes, 0);

  const source: Sandbox = await here.forkd.create("tiny");
  await sh(source, "echo hello > /etc/marker; sync");
  await source.branch({ tag: "grown" });
  await source.kill();
  const { physicalBytes } = await here.forkd.snapshots.info("grown");
  const grown = await here.forkd.hub.push("grown", `${registry.address}/team/tiny:v2`);
  assert.ok(grown.movedBytes <= physicalBytes * 1.2, `${grown.movedBytes} of ${physicalBytes}`);
  // Another repository takes the blobs from the first one.
  const mounted = await here.forkd.hub.push("grown", `${registry.address}/other/grown`);
  assert.ok(mounted.movedBytes < 65_536, String(mounted.movedBytes));

  const there = await otherHost(t);
  const pulled = await there.forkd.hub.pull(base);
  assert.equal(pulled.digest, pushed.digest);
  assert.deepEqual(pulled.snapshots, [{ tag: "tiny", existed: false }]);
  const layer = await there.forkd.hub.pull(`${registry.address}/other/grown`);
  assert.deepEqual(
    layer.snapshots.map(({ existed }) => existed),
    [true, false],
  );
  assert.ok(layer.movedBytes <= grown.movedBytes * 1.1, `${layer.movedBytes} of ${grown.movedBytes}`);
  await there.forkd.snapshots.info("grown", { verify: true });
  await answers(there, "grown", "hello");
  const ids = await Promise.all([here, there].map(({ forkd }) => forkd.snapshots.info("grown")));
  assert.equal(ids[0]?.id, ids[1]?.id);
  assert.deepEqual(drafts(there), []);

  await rejectsWith(there.forkd.hub.pull(base.replace("v1", "none")), "artifact_not_found", /tiny:none/);
  const repeated = await there.forkd.hub.pull(base);
  assert.ok(repeated.snapshots.every(({ existed }) => existed));
});

test("damage in the registry is refused by name, and leaves nothing behind", async (t) => {
  const registry = await startRegistry(t);
  const there = await otherHost(t);
  const reference = `${registry.address}/x/tiny:v1`;
  const { digest = "" } = await here.forkd.hub.push("tiny", reference);
  const layer = largestLayer(registry, digest);
  const path = blobFile(registry, layer.digest);
  const good = readFileSync(path);
  const bad = Buffer.from(good);
  const middle = bad.length >> 1;
  bad[middle] = (bad[middle] ?? 0) ^ 1;
  writeFileSync(path, bad);
  await rejectsWith(there.forkd.hub.pull(reference), "artifact_corrupt", new RegExp(layer.digest));
  assert.deepEqual(await there.forkd.snapshots.list().all(), []);

  rmSync(path);
  await rejectsWith(there.forkd.hub.pull(reference), "artifact_not_found", new RegExp(layer.digest));
  writeFileSync(path, good.subarray(0, middle));
  await assert.rejects(there.forkd.hub.pull(reference), new RegExp(layer.digest));
  writeFileSync(path, good);
  const pulled = await there.forkd.hub.pull(reference, { tag: "mended" });
  assert.equal(pulled.snapshot.tag, "mended");
  assert.deepEqual(drafts(there), []);
});

test("a pull continues after the daemon was killed, without fetching anything twice", async (t) => {
  const registry = await startRegistry(t);
  const repository = "x/python:v1";
  const { totalBytes } = await here.forkd.hub.push("python", `${registry.address}/${repository}`);
  const proxy = await startProxy(t, registry.address);
  await withDaemons([], async (start) => {
    const first = await start();
    let done = 0;
    const reported = gate();
    const pulling = first.forkd.hub.pull(`${proxy.address}/${repository}`, {
      onProgress: ({ doneBytes = 0 }) => {
        done = doneBytes;
        if (done === 0) return;
        // The first of many chunks is here: from now on the registry sends nothing.
        proxy.stopAfter ??= proxy.blobBytes;
        reported.open();
      },
    });
    pulling.catch(() => undefined);
    await Promise.all([proxy.stopped, reported.opened]);
    await endDaemon(first, "SIGKILL");
    await assert.rejects(pulling);
    const before = proxy.blobBytes;
    proxy.stopAfter = undefined;
    const second = await start();
    assert.deepEqual(await second.forkd.snapshots.list().all(), []);
    await second.forkd.hub.pull(`${proxy.address}/${repository}`);
    const after = proxy.blobBytes - before;
    assert.ok(after <= totalBytes - done, `${after} of ${totalBytes} bytes, although ${done} were here`);
    await second.forkd.snapshots.info("python", { verify: true });
    assert.deepEqual(drafts(second), []);
    const child = await second.forkd.create("python");
    await child.kill();
  });
});

test("gc removes what an interrupted pull has fetched, after a day", async (t) => {
  const daemon = await otherHost(t);
  const name = `.pull-${"0".repeat(64)}`;
  const dir = join(daemon.dataDir, "snapshots", name);
  mkdirSync(dir);
  writeFileSync(join(dir, "journal"), "x");
  assert.deepEqual((await daemon.forkd.gc({ dryRun: false })).removed, []);
  const twoDaysAgo = new Date(Date.now() - 2 * 86_400_000);
  for (const each of [join(dir, "journal"), dir]) utimesSync(each, twoDaysAgo, twoDaysAgo);
  const { removed, freedBytes } = await daemon.forkd.gc({ dryRun: true });
  assert.deepEqual(removed, [{ kind: "pull", name, bytes: freedBytes }]);
  assert.deepEqual(drafts(daemon), [name]);
  await daemon.forkd.gc({ dryRun: false });
  assert.deepEqual(drafts(daemon), []);
});

test("what is not a snapshot, or no reference, is refused before anything is fetched", async (t) => {
  const registry = await startRegistry(t);
  const { hub } = here.forkd;
  await rejectsWith(hub.pull("python-numpy"), "invalid_request", /names no registry/);
  await rejectsWith(hub.pull("ghcr.io/Team/x"), "invalid_request", /lower-case/);
  await rejectsWith(hub.pull("http://192.0.2.1/x.tar"), "invalid_request", /no TLS/);
  await rejectsWith(hub.push("none", `${registry.address}/x`), "snapshot_not_found");
  await rejectsWith(hub.push("tiny", "127.0.0.1:1/x"), "registry_unreachable");
  await rejectsWith(hub.search(), "invalid_request", /registry/);
  const { digest = "" } = await hub.push("tiny", `${registry.address}/x/tiny:v1`);
  // An image of another tool, made from the same blobs.
  const manifest = JSON.parse(readFileSync(blobFile(registry, digest), "utf8")) as Record<string, unknown>;
  const image = JSON.stringify({ ...manifest, artifactType: undefined });
  const put = await fetch(`http://${registry.address}/v2/x/tiny/manifests/image`, {
    method: "PUT",
    headers: { "content-type": "application/vnd.oci.image.manifest.v1+json" },
    body: image,
  });
  assert.equal(put.status, 201);
  await rejectsWith(
    hub.pull(`${registry.address}/x/tiny:image`, { tag: "y" }),
    "invalid_archive",
    /not a snapshot/,
  );
  const { found } = await hub.search(registry.address);
  assert.deepEqual(
    found.map(({ reference }) => reference),
    [`${registry.address}/x/tiny:v1`],
  );
  assert.deepEqual((await hub.search(`${registry.address}/y`)).found, []);
  assert.equal((await hub.search(registry.address, { text: "TINY" })).found.length, 1);
  assert.deepEqual((await hub.search(registry.address, { text: "none" })).found, []);
});

test("the CLI pushes, searches and pulls with the password of a login; skopeo can copy between", async (t) => {
  const registry = await startRegistry(t, { password: "s3cret" });
  const there = await otherHost(t);
  const forkd = async (daemon: TestDaemon, ...args: string[]) =>
    await run(process.execPath, [cliPath, ...args], { env: { ...daemon.env, HOME: here.dir } });
  const reference = `${registry.address}/team/tiny:v1`;
  await assert.rejects(forkd(here, "push", "tiny", reference), /forkd login/);
  const login = run(
    process.execPath,
    [cliPath, "login", registry.address, "-u", "user", "--password-stdin"],
    {
      env: { ...here.env, HOME: here.dir },
    },
  );
  login.child.stdin?.end("s3cret");
  await login;
  const pushed = await forkd(here, "push", "tiny", reference);
  assert.match(pushed.stdout, new RegExp(`^${reference}@sha256:[0-9a-f]{64}\\n$`));
  assert.match(pushed.stderr, /Pushed tiny in .* s: sent .* of /);
  const auth = join(here.dir, ".docker/config.json");
  const copy = reference.replace("team", "copied");
  await run("skopeo", [
    ...["copy", "--authfile", auth, "--src-tls-verify=false", "--dest-tls-verify=false"],
    ...[`docker://${reference}`, `docker://${copy}`],
  ]);
  const search = await forkd(there, "search", registry.address, "-q");
  assert.deepEqual(search.stdout.trim().split("\n"), [copy, reference]);
  const { stdout } = await forkd(there, "pull", copy, "--tag", "mine", "--json");
  const events = stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string; pull?: object });
  assert.equal(events.at(-1)?.type, "pulled");
  assert.ok(events.some(({ type }) => type === "progress"));
  const child = await there.forkd.create("mine");
  await child.kill();
  const log = here.log() + there.log();
  assert.doesNotMatch(log, /s3cret/);
  assert.doesNotMatch(readFileSync(join(there.dataDir, "audit.jsonl"), "utf8"), /s3cret/);
});

test("an archive is sent to a URL and fetched from one", async (t) => {
  const files = new Map<string, Buffer>();
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "", "http://x");
    const pieces: Buffer[] = [];
    request.on("data", (piece: Buffer) => pieces.push(piece));
    request.on("end", () => {
      if (request.method === "PUT") files.set(pathname, Buffer.concat(pieces));
      const file = files.get(pathname);
      response.writeHead(file ? 200 : 404, file && { "content-length": file.length });
      response.end(request.method === "PUT" ? undefined : file);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/tiny.tar?signature=s3cret`;
  const pushed = await here.forkd.hub.push("tiny", url);
  assert.equal(pushed.reference, url.replace("?signature=s3cret", ""));
  assert.equal(files.get("/tiny.tar")?.length, pushed.movedBytes);
  const there = await otherHost(t);
  await there.forkd.hub.pull(url);
  const child = await there.forkd.create("tiny");
  await child.kill();
  await rejectsWith(there.forkd.hub.pull(url.replace("tiny.tar", "none")), "artifact_not_found");
  files.set("/tiny.tar", (files.get("/tiny.tar") ?? Buffer.alloc(0)).subarray(0, 100_000));
  await assert.rejects(there.forkd.hub.pull(url, { tag: "short" }));
  assert.deepEqual(drafts(there), []);
  assert.doesNotMatch(here.log() + there.log(), /s3cret/);
  assert.ok(statSync(there.dataDir).isDirectory());
});
