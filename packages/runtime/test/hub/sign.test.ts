import assert from "node:assert/strict";
import { generateKeyPairSync, sign } from "node:crypto";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { test, type TestContext } from "node:test";
import { signaturePayload } from "@forkd/contract/wire";
import { digestOf, mediaTypes, Registries } from "@forkd/registry";
import { startRegistry } from "@forkd/test-support";
import type { RuntimeConfig } from "../../src/config.ts";
import { signManifest } from "../../src/hub/sign.ts";

/** A manifest without layers in the repository team/x. Returns its digest. */
async function pushManifest(registry: string): Promise<string> {
  using registries = new Registries();
  const repository = registries.repository({ registry, repository: "team/x" }, "pull,push");
  const config = Buffer.from("{}");
  const descriptor = { mediaType: mediaTypes.empty, digest: digestOf(config), size: config.length };
  const open = async function* () {
    yield config;
  };
  await repository.uploadBlob({ ...descriptor, open });
  const manifest = { schemaVersion: 2, mediaType: mediaTypes.manifest, config: descriptor, layers: [] };
  return (await repository.putManifest(Buffer.from(JSON.stringify(manifest)), mediaTypes.manifest)).digest;
}

/** A mirror that has no signatures yet, and says so with an empty manifest. */
async function startStaleMirror(t: TestContext): Promise<string> {
  const server = http.createServer((_request, response) => {
    const config = { mediaType: mediaTypes.empty, digest: digestOf("{}"), size: 2 };
    response.setHeader("content-type", mediaTypes.manifest);
    response.end(JSON.stringify({ schemaVersion: 2, config, layers: [] }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  t.after(() => server.closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("signManifest() adds to the signatures of the registry, whatever a mirror has", async (t) => {
  const { address } = await startRegistry(t);
  const digest = await pushManifest(address);
  const mirrors = { [address]: [await startStaleMirror(t)] };
  const config = { hub: { registry: undefined, mirrors, caFile: undefined } } as unknown as RuntimeConfig;
  let tag = "";
  for (const _ of ["first", "second"]) {
    const { privateKey, publicKey } = generateKeyPairSync("ed25519");
    const payload = Buffer.from(signaturePayload(`${address}/team/x`, digest));
    const request = {
      reference: `${address}/team/x`,
      digest,
      signature: sign(null, payload, privateKey).toString("base64"),
      public_key: String(publicKey.export({ format: "pem", type: "spki" })),
    };
    ({ signature_tag: tag } = await signManifest(config, request, new AbortController().signal));
  }
  using registries = new Registries();
  const { bytes } = await registries.repository({ registry: address, repository: "team/x" }).manifest(tag);
  const { layers } = JSON.parse(bytes.toString()) as { layers: unknown[] };
  assert.equal(layers.length, 2);
});
