/** The client against a real registry. */
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, startRegistry } from "@forkd/test-support";
import { checkAccess, listRepositories } from "../src/catalog.ts";
import { digestOf } from "../src/digest.ts";
import { mediaTypes, parseManifest } from "../src/manifest.ts";
import { Registries, type RegistriesOptions } from "../src/registries.ts";
import type { Repository } from "../src/repository.ts";

const retries = { attempts: 4, firstMs: 5, maxMs: 50 };
const MiB = 1 << 20;

function open(t: TestContext, options: RegistriesOptions = {}): Registries {
  const registries = new Registries({ retries, silenceMs: 10_000, ...options });
  t.after(() => registries[Symbol.dispose]());
  return registries;
}

function blobOf(bytes: Uint8Array) {
  return {
    digest: digestOf(bytes),
    size: bytes.length,
    open: async function* () {
      for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
    },
  };
}

async function read(pieces: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const all: Uint8Array[] = [];
  for await (const piece of pieces) all.push(piece);
  return Buffer.concat(all);
}

/** Sends a manifest with one layer. */
async function push(repository: Repository, layer: Uint8Array, tag?: string) {
  const config = blobOf(Buffer.from("{}"));
  await repository.uploadBlob(config);
  await repository.uploadBlob(blobOf(layer));
  const bytes = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: mediaTypes.manifest,
      artifactType: "application/vnd.test",
      config: { mediaType: mediaTypes.empty, digest: config.digest, size: config.size },
      layers: [{ mediaType: "application/octet-stream", digest: digestOf(layer), size: layer.length }],
    }),
  );
  const { digest } = await repository.putManifest(bytes, mediaTypes.manifest, { tag });
  return { digest, bytes };
}

test("blobs and manifests come back as they were sent, small and large", async (t) => {
  const { address } = await startRegistry(t);
  const repository = open(t).repository({ registry: address, repository: "team/tool" });
  for (const bytes of [randomBytes(10), randomBytes(9 * MiB + 17)]) {
    const blob = blobOf(bytes);
    assert.equal(await repository.hasBlob(blob), false);
    let sent = 0;
    await repository.uploadBlob(blob, { onBytes: (count) => (sent += count) });
    assert.equal(sent, bytes.length);
    assert.equal(await repository.hasBlob(blob), true);
    assert.ok((await read(repository.readBlob(blob))).equals(bytes));
    assert.ok((await read(repository.readBlob(blob, { offset: 3, length: 5 }))).equals(bytes.subarray(3, 8)));
  }
  assert.equal(await repository.head("v1"), undefined);
  const { digest, bytes } = await push(repository, randomBytes(100), "v1");
  assert.deepEqual(await repository.head("v1"), {
    mediaType: mediaTypes.manifest,
    digest,
    size: bytes.length,
  });
  const stored = await repository.manifest("v1");
  assert.ok(stored.bytes.equals(bytes));
  assert.equal(parseManifest(stored.bytes, stored.mediaType).kind, "manifest");
  assert.ok((await repository.manifest(digest)).bytes.equals(bytes));
});

test("tags() and listRepositories() follow all pages", async (t) => {
  const { address } = await startRegistry(t);
  const registries = open(t);
  const repository = registries.repository({ registry: address, repository: "many" });
  for (const tag of ["a", "b", "c"]) await push(repository, Buffer.from("x"), tag);
  await push(registries.repository({ registry: address, repository: "other/one" }), Buffer.from("y"), "t");
  assert.deepEqual((await repository.tags()).toSorted(), ["a", "b", "c"]);
  assert.deepEqual((await listRepositories(registries, address)).toSorted(), ["many", "other/one"]);
  await rejectsWith(
    registries.repository({ registry: address, repository: "none" }).tags(),
    "artifact_not_found",
    /none/,
  );
});

test("mountBlob() takes a blob of another repository without sending it", async (t) => {
  const { address, directory } = await startRegistry(t);
  const registries = open(t);
  const [one, two] = ["one", "two"].map((name) =>
    registries.repository({ registry: address, repository: name }),
  );
  assert.ok(one && two);
  const blob = blobOf(randomBytes(1000));
  await one.uploadBlob(blob);
  assert.equal(await two.hasBlob(blob), false);
  assert.equal(await two.mountBlob(blob.digest, "one"), true);
  assert.equal(await two.hasBlob(blob), true);
  assert.equal(await two.mountBlob(digestOf("none"), "one"), false);
  const uploads = join(directory, "data/docker/registry/v2/repositories/two/_uploads");
  const left = await readdir(uploads, { recursive: true });
  assert.deepEqual(
    left.filter((name) => name.endsWith("startedat")),
    [],
    "the upload that the registry began is cancelled",
  );
});

test("referrers() lists what refers to a manifest on a registry without that API", async (t) => {
  const { address } = await startRegistry(t);
  const repository = open(t).repository({ registry: address, repository: "signed" });
  const subject = await push(repository, Buffer.from("subject"), "v1");
  assert.deepEqual(await repository.referrers(subject.digest), []);
  const signed = (text: string) =>
    Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: mediaTypes.manifest,
        artifactType: `application/vnd.test.${text}`,
        config: { mediaType: mediaTypes.empty, digest: digestOf("{}"), size: 2 },
        layers: [],
        subject: { mediaType: mediaTypes.manifest, digest: subject.digest, size: subject.bytes.length },
      }),
    );
  const first = await repository.putReferrer(signed("one"), mediaTypes.manifest);
  const second = await repository.putReferrer(signed("two"), mediaTypes.manifest);
  await repository.putReferrer(signed("two"), mediaTypes.manifest);
  assert.deepEqual(
    (await repository.referrers(subject.digest)).map(({ digest }) => digest),
    [first, second],
  );
  const [only, ...rest] = await repository.referrers(subject.digest, "application/vnd.test.two");
  assert.equal(only?.digest, second);
  assert.equal(rest.length, 0);
});

test("a registry with a password is used with credentials, and refused without", async (t) => {
  const { address } = await startRegistry(t, { password: "s3cret" });
  const asked: string[] = [];
  const credentials = (password: string) => async (registry: string) => {
    asked.push(registry);
    return { username: "user", password };
  };
  const good = open(t, { credentials: credentials("s3cret") });
  await checkAccess(good, address);
  const repository = good.repository({ registry: address, repository: "private" });
  await push(repository, randomBytes(9 * MiB), "v1");
  assert.ok(asked.every((registry) => registry === address));
  const bad = await rejectsWith(
    checkAccess(open(t, { credentials: credentials("wrong") }), address),
    "registry_denied",
  );
  assert.deepEqual(bad.remedy, { action: "log_in", registry: address });
  assert.doesNotMatch(bad.message, /wrong/);
  await rejectsWith(
    open(t).repository({ registry: address, repository: "private" }).manifest("v1"),
    "registry_denied",
    /user name/,
  );
});

test("a registry with TLS is used with its authority, and refused without", async (t) => {
  const { address, caFile } = await startRegistry(t, { tls: true });
  const repository = open(t, { caFile }).repository({ registry: address, repository: "safe" });
  await push(repository, randomBytes(1000), "v1");
  assert.deepEqual(await repository.tags(), ["v1"]);
  await rejectsWith(checkAccess(open(t), address), "registry_failed", /TLS/);
  await rejectsWith(checkAccess(open(t, { plainHttp: true }), address), "registry_failed");
  await rejectsWith(checkAccess(open(t, { caFile: "/none" }), address), "invalid_request", /"\/none"/);
});

test("mirrors are asked first, and the registry itself when they fail", async (t) => {
  const [origin, mirror] = [await startRegistry(t), await startRegistry(t)];
  const mirrors = { [origin.address]: ["http://127.0.0.1:1", `http://${mirror.address}`] };
  const registries = open(t, { mirrors, retries: { ...retries, attempts: 2 } });
  const [here, there] = [origin, mirror].map(({ address }) =>
    open(t).repository({ registry: address, repository: "x" }),
  );
  assert.ok(here && there);
  const onlyMirror = await push(there, Buffer.from("only the mirror has this"), "m");
  const onlyOrigin = await push(here, Buffer.from("only the registry has this"), "o");
  const both = registries.repository({ registry: origin.address, repository: "x" });
  assert.equal((await both.manifest("m")).digest, onlyMirror.digest);
  assert.equal((await both.manifest("o")).digest, onlyOrigin.digest);
  const bytes = Buffer.from("only the registry has this");
  assert.ok((await read(both.readBlob(blobOf(bytes)))).equals(bytes));
});

test("transfers continue after the registry was killed", async (t) => {
  const registry = await startRegistry(t);
  const registries = open(t, { retries: { attempts: 50, firstMs: 20, maxMs: 200 } });
  const repository = registries.repository({ registry: registry.address, repository: "big" });
  const bytes = randomBytes(64 * MiB);
  const blob = blobOf(bytes);
  /** Kills the registry once, in the middle. */
  const interrupter = () => {
    let [moved, killed] = [0, false];
    return (count: number) => {
      moved += count;
      if (killed || moved < bytes.length / 3) return;
      killed = true;
      void registry.kill().then(() => registry.start());
    };
  };
  await repository.uploadBlob(blob, { onBytes: interrupter() });
  let received = 0;
  const count = interrupter();
  const back = await read(
    repository.readBlob(blob, {
      onBytes: (some) => {
        received += some;
        count(some);
      },
    }),
  );
  assert.ok(back.equals(bytes));
  assert.equal(received, bytes.length, "no byte is fetched twice");
});

test("an aborted transfer ends with the reason", async (t) => {
  const { address } = await startRegistry(t);
  const repository = open(t).repository({ registry: address, repository: "x" });
  const bytes = randomBytes(16 * MiB);
  const stop = new AbortController();
  const reason = new Error("enough");
  const onBytes = (): void => stop.abort(reason);
  const options = { signal: stop.signal, onBytes };
  await assert.rejects(repository.uploadBlob(blobOf(bytes), options), (error) => error === reason);
  await repository.uploadBlob(blobOf(bytes));
  const again = new AbortController();
  const reading = read(
    repository.readBlob(blobOf(bytes), { signal: again.signal, onBytes: () => again.abort(reason) }),
  );
  await assert.rejects(reading, (error) => error === reason);
});
