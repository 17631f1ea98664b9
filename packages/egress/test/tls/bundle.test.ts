import assert from "node:assert/strict";
import { X509Certificate } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createSecureContext } from "node:tls";
import { temporaryDirectory } from "@forkd/test-support";
import { buildBundle, guestTrustVariables, systemRoots } from "../../src/tls/bundle.ts";
import { InstallationCa } from "../../src/tls/ca.ts";

test("buildBundle() joins the host's roots, its extra CAs and our CA, each once", async (t) => {
  const dir = await temporaryDirectory(t);
  const [host, extra, own] = await Promise.all(
    ["host", "extra", "own"].map(async (name) =>
      (await InstallationCa.open(join(dir, name))).certificatePem(),
    ),
  );
  assert.ok(host !== undefined && extra !== undefined && own !== undefined);
  const bundles = [join(dir, "missing.pem"), join(dir, "host.pem")];
  await writeFile(join(dir, "host.pem"), `# a comment\r\n${host.replaceAll("\n", "\r\n")}junk\n${extra}`);
  const broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  await writeFile(join(dir, "extra.pem"), `${extra}${broken}`);
  const sources = { bundles, extra: join(dir, "extra.pem") };
  assert.equal(await buildBundle(own, sources), host + extra + own);
  assert.deepEqual(await systemRoots(sources), [host, extra]);
});

test("systemRoots() uses Node's list if the host has no bundle", async (t) => {
  const dir = await temporaryDirectory(t);
  const roots = await systemRoots({ bundles: [join(dir, "missing.pem")], extra: "" });
  assert.ok(roots.length > 50);
  for (const root of roots) assert.ok(new X509Certificate(root).ca);
});

test("the bundle of this host is one that TLS accepts", async (t) => {
  const ca = await InstallationCa.open(await temporaryDirectory(t));
  const bundle = await buildBundle(ca.certificatePem());
  assert.ok(bundle.endsWith(ca.certificatePem()));
  createSecureContext({ ca: bundle });
});

test("guestTrustVariables() sends every tool to the same file", () => {
  const variables = guestTrustVariables("/x/bundle.pem");
  const { UV_NATIVE_TLS, ...files } = variables;
  assert.equal(UV_NATIVE_TLS, "1");
  assert.deepEqual(new Set(Object.values(files)), new Set(["/x/bundle.pem"]));
  for (const name of ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"])
    assert.ok(name in files);
});
