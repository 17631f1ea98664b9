import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { formatReference } from "@forkd/registry";
import { sendTargetOf, targetOf } from "../../src/hub/target.ts";
import { tagOf } from "../../src/hub/pull.ts";
import { hubSettings } from "../../src/hub-settings.ts";

function shown(text: string, hubRegistry?: string): string {
  const target = targetOf(text, { hubRegistry, plainHttp: false });
  return target.kind === "url" ? target.url.href : formatReference(target.reference);
}

const isRefused = (error: unknown) => error instanceof AppError && error.code === "invalid_request";

test("targetOf() never takes a name without a host for one of Docker Hub", () => {
  assert.equal(shown("ghcr.io/a/b:v1"), "ghcr.io/a/b:v1");
  assert.equal(shown("localhost/x"), "localhost/x");
  assert.equal(shown("docker.io/x"), "docker.io/library/x");
  assert.equal(shown("numpy:v1", "ghcr.io/team"), "ghcr.io/team/numpy:v1");
  assert.equal(shown("sub/numpy", "localhost:5000"), "localhost:5000/sub/numpy");
  for (const text of ["numpy", "team/numpy:v1", "", "numpy:v1"])
    assert.throws(() => shown(text), isRefused, text);
});

test("targetOf() takes URLs with TLS, and without it only on this host", () => {
  assert.equal(shown("https://x.example/a.tar?sig=1"), "https://x.example/a.tar?sig=1");
  assert.equal(shown("http://127.0.0.1:80/a"), "http://127.0.0.1/a");
  for (const text of ["http://x.example/a", "https://u:p@x.example/a", "https://"])
    assert.throws(() => shown(text), isRefused, text);
  const refused = (() => {
    try {
      return shown("http://x.example/a?sig=s3cret");
    } catch (error) {
      return String(error);
    }
  })();
  assert.doesNotMatch(refused, /s3cret/);
  assert.equal(targetOf("http://x.example/a", { hubRegistry: undefined, plainHttp: true }).kind, "url");
});

test("sendTargetOf() refuses a digest, which a push cannot choose", () => {
  const options = { hubRegistry: undefined, plainHttp: false };
  assert.equal(sendTargetOf("ghcr.io/a/b:v1", options).kind, "registry");
  assert.equal(sendTargetOf("https://x.example/a@b", options).kind, "url");
  for (const text of ["ghcr.io/a/b", "ghcr.io/a/b:v1"])
    assert.throws(() => sendTargetOf(`${text}@sha256:${"0".repeat(64)}`, options), isRefused, text);
});

test("tagOf() is the tag of the request, or the last part of the repository", () => {
  assert.equal(tagOf({ reference: "ghcr.io/team/numpy:v1" }, undefined), "numpy");
  assert.equal(tagOf({ reference: "ghcr.io/team/numpy:v1", tag: "x" }, undefined), "x");
  assert.equal(tagOf({ reference: "https://x.example/a.tar" }, undefined), undefined);
  assert.throws(() => tagOf({ reference: `ghcr.io/${"a".repeat(80)}` }, undefined), isRefused);
});

test("the settings of registries accept what can be used, and name what cannot", () => {
  const { hub_registry: place, registry_mirrors: mirrors, registry_ca_file: file } = hubSettings;
  for (const text of ["none", "ghcr.io", "ghcr.io/team", "localhost:5000", "localhost/x"])
    assert.ok(place.schema.safeParse(text).success, text);
  for (const text of ["team", "ghcr.io/", "https://ghcr.io", "Ghcr.io/Team", ""])
    assert.ok(!place.schema.safeParse(text).success, text);
  const given = mirrors.schema.parse("docker.io=https://a.example, docker.io=https://b.example/");
  assert.deepEqual(mirrors.becomes(given), {
    hub: { mirrors: { "docker.io": ["https://a.example", "https://b.example"] } },
  });
  for (const text of ["docker.io", "docker.io=a.example", "x=https://a/b", "=https://a", "x=ftp://a"])
    assert.ok(!mirrors.schema.safeParse(text).success, text);
  assert.deepEqual(file.becomes("system"), { hub: { caFile: undefined } });
});
