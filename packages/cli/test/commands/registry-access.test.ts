import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import type { Forkd } from "@forkd/sdk";
import { authFor } from "../../src/hub/registry-access.ts";

/** Docker's file with a password for one registry. */
async function logIn(t: TestContext, registry: string): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), "forkd-auth-"));
  const before = process.env["DOCKER_CONFIG"];
  process.env["DOCKER_CONFIG"] = directory;
  t.after(async () => {
    if (before === undefined) delete process.env["DOCKER_CONFIG"];
    else process.env["DOCKER_CONFIG"] = before;
    await rm(directory, { recursive: true });
  });
  const auths = { [registry]: { auth: Buffer.from("me:secret").toString("base64") } };
  await writeFile(join(directory, "config.json"), JSON.stringify({ auths }));
}

function daemonWith(hubRegistry: string): Forkd {
  const settings = [{ name: "hub_registry", value: hubRegistry }];
  return { config: () => Promise.resolve({ settings }) } as unknown as Forkd;
}

test("authFor() looks for references without a host in the registry of the setting", async (t) => {
  await logIn(t, "example.com:5000");
  const { signal } = new AbortController();
  const found = { username: "me", password: "secret" };
  const forkd = daemonWith("example.com:5000/team");
  for (const reference of ["numpy", "numpy:v1", "numpy:5000", "sub/numpy:v1", undefined])
    assert.deepEqual(await authFor(forkd, reference, signal), found, reference);
  for (const reference of ["ghcr.io/numpy:v1", "localhost/numpy", "https://example.com:5000/numpy.tar"])
    assert.equal(await authFor(forkd, reference, signal), undefined, reference);
  assert.equal(await authFor(daemonWith("none"), "numpy:v1", signal), undefined);
  assert.deepEqual(await authFor(daemonWith("none"), "example.com:5000/", signal), found);
});
