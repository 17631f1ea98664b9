import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { chmod, mkdir, readdir, readFile, rename, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { inspect } from "node:util";
import { test } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { SecretStore } from "../../src/secrets/store.ts";

const value = "sk-live-0123456789abcdef";
const openai = { name: "OPENAI", value, hosts: ["api.openai.com"] };

test("a secret is listed without its value and returned with it", async (t) => {
  const dir = await temporaryDirectory(t);
  const store = await SecretStore.open(dir);
  assert.deepEqual(await readdir(dir), [], "nothing is made before the first use");
  const made = await store.set(openai);
  assert.match(made.placeholder, /^forkd-secret-[0-9a-f]{32}$/);
  assert.deepEqual([made.header, made.format], ["Authorization", "Bearer {}"]);
  assert.deepEqual(store.list(), [made]);
  assert.ok(!JSON.stringify(store.list()).includes(value));
  assert.deepEqual(store.get(["OPENAI", "OPENAI"]), [
    {
      name: "OPENAI",
      placeholder: made.placeholder,
      hosts: ["api.openai.com"],
      header: "authorization",
      format: "Bearer {}",
      value,
    },
  ]);
  const again = await SecretStore.open(dir);
  assert.deepEqual(again.list(), [made]);
  assert.equal(again.get(["OPENAI"])[0]?.value, value);
});

test("neither file, nor the inspected store, contains a value; both files belong to their owner only", async (t) => {
  const dir = await temporaryDirectory(t);
  const store = await SecretStore.open(dir);
  await store.set(openai);
  const names = (await readdir(dir)).sort();
  assert.deepEqual(names, ["secrets.json", "secrets.key"]);
  const encodings = [value, Buffer.from(value).toString("base64"), Buffer.from(value).toString("hex")];
  for (const name of names) {
    const path = join(dir, name);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    const text = await readFile(path, "latin1");
    for (const encoded of encodings) assert.ok(!text.includes(encoded), `${name} contains the value`);
  }
  const shown = inspect(store, { depth: 10, showHidden: true });
  for (const encoded of encodings) assert.ok(!shown.includes(encoded));
});

test("set() replaces a secret and keeps its placeholder; every write has another nonce", async (t) => {
  const dir = await temporaryDirectory(t);
  const store = await SecretStore.open(dir);
  const sealed = async () =>
    JSON.parse(await readFile(join(dir, "secrets.json"), "utf8")).secrets[0].sealed as {
      nonce: string;
      data: string;
    };
  const first = await store.set(openai);
  const before = await sealed();
  const second = await store.set({ ...openai, hosts: ["*.openai.com:8443"], header: "X-Api-Key" });
  const after = await sealed();
  assert.notEqual(before.nonce, after.nonce);
  assert.notEqual(before.data, after.data);
  assert.equal(second.placeholder, first.placeholder);
  assert.deepEqual([second.header, second.format], ["X-Api-Key", "{}"]);
  await store.remove("OPENAI");
  assert.deepEqual(store.list(), []);
  await rejectsWith(store.remove("OPENAI"), "secret_not_found", /"OPENAI"/);
  assert.notEqual((await store.set(openai)).placeholder, first.placeholder);
  assert.deepEqual(store.get(["OTHER"]), []);
});

test("concurrent changes are all kept", async (t) => {
  const dir = await temporaryDirectory(t);
  const store = await SecretStore.open(dir);
  const names = Array.from({ length: 20 }, (_, index) => `KEY_${index}`);
  await Promise.all(names.map((name) => store.set({ ...openai, name, value: `${value}-${name}` })));
  await Promise.all([store.remove("KEY_3"), store.set({ ...openai, name: "KEY_4", value: "other-value" })]);
  const again = await SecretStore.open(dir);
  assert.deepEqual(
    again.list().map(({ name }) => name),
    names.filter((name) => name !== "KEY_3").sort(),
  );
  assert.equal(again.get(["KEY_4"])[0]?.value, "other-value");
  assert.equal(again.get(["KEY_19"])[0]?.value, `${value}-KEY_19`);
  assert.deepEqual((await readdir(dir)).sort(), ["secrets.json", "secrets.key"]);
});

test("set() refuses fields that cannot be used, and never repeats the value", async (t) => {
  const store = await SecretStore.open(await temporaryDirectory(t));
  const cases: [object, RegExp][] = [
    [{ name: "lower" }, /name: must be/],
    [{ name: "1A" }, /name/],
    [{ name: "A".repeat(65) }, /name/],
    [{ value: "" }, /value: must not be empty/],
    [{ value: "x".repeat(65_537) }, /value: must have at most/],
    [{ value: `${value}\n` }, /control characters/],
    [{ value: `${value}\r\nX: y` }, /control characters/],
    [{ value: `${value}ü` }, /ASCII/],
    [{ value: ` ${value}` }, /space/],
    [{ hosts: [] }, /at least one host/],
    [{ hosts: ["*"] }, /"\*" must be a name/],
    [{ hosts: ["*.com"] }, /too wide/],
    [{ hosts: ["a.*.com"] }, /must be a name/],
    [{ hosts: ["10.0.0.1"] }, /address/],
    [{ hosts: ["0x7f.1"] }, /address|not a host name/],
    [{ hosts: ["https://api.openai.com"] }, /must be a name/],
    [{ hosts: ["api.openai.com:0"] }, /port/],
    [{ hosts: ["api.openai.com:65536"] }, /port/],
    [{ hosts: ["user@api.openai.com"] }, /must be a name/],
    [{ hosts: ["secrets.internal"] }, /reserved/],
    [{ header: "Host" }, /cannot hold a secret/],
    [{ header: "content-LENGTH" }, /cannot hold a secret/],
    [{ header: "Transfer-Encoding" }, /cannot hold a secret/],
    [{ header: "Connection" }, /cannot hold a secret/],
    [{ header: "Proxy-Authorization" }, /cannot hold a secret/],
    [{ header: ":authority" }, /name of a header/],
    [{ header: "X Y" }, /name of a header/],
    [{ format: "Bearer" }, /exactly once/],
    [{ format: "{} {}" }, /exactly once/],
    [{ format: "{}\n" }, /ASCII/],
    [{ extra: 1 }, /extra/],
  ];
  for (const [change, message] of cases) {
    const error = await rejectsWith(store.set({ ...openai, ...change }), "invalid_request", message);
    assert.ok(!inspect(error, { depth: 5 }).includes(value));
  }
  assert.deepEqual(store.list(), []);
  const odd = await store.set({ ...openai, hosts: ["API.OpenAI.com.", "bücher.example", "*.x.example:443"] });
  assert.deepEqual(odd.hosts, ["api.openai.com", "xn--bcher-kva.example", "*.x.example"]);
});

test("a damaged file is reported by name and is not overwritten", async (t) => {
  const dir = await temporaryDirectory(t);
  const file = join(dir, "secrets.json");
  await (await SecretStore.open(dir)).set(openai);
  const good = await readFile(file, "utf8");
  const record = JSON.parse(good).secrets[0];
  const data = Buffer.from(record.sealed.data, "base64");
  data[3] = (data[3] ?? 0) ^ 1;
  const damages: [string, RegExp][] = [
    [good.replace(record.sealed.data, data.toString("base64")), /the secret "OPENAI" was changed or damaged/],
    [good.replace("api.openai.com", "evil.example.com"), /the secret "OPENAI" was changed or damaged/],
    [good.replace('"OPENAI"', '"OTHER"'), /the secret "OTHER" was changed or damaged/],
    [good.replace('"Authorization"', '"X-Other"'), /was changed or damaged/],
    [good.replace("Bearer {}", "{}"), /was changed or damaged/],
    [good.replace('"version": 1', '"version": 2'), /version/],
    [good.slice(0, 100), /not valid JSON/],
    ["", /not valid JSON/],
  ];
  for (const [content, message] of damages) {
    await writeFile(file, content);
    const error = await rejectsWith(SecretStore.open(dir), "host_not_ready", message);
    assert.ok(error.message.includes(file));
    assert.equal(await readFile(file, "utf8"), content);
  }
  await writeFile(file, good);
  assert.equal((await SecretStore.open(dir)).get(["OPENAI"])[0]?.value, value);
});

test("a missing, foreign or damaged key is reported, and no other key is made", async (t) => {
  const dir = await temporaryDirectory(t);
  const keyFile = join(dir, "secrets.key");
  await (await SecretStore.open(dir)).set(openai);
  await rename(keyFile, `${keyFile}.kept`);
  await rejectsWith(SecretStore.open(dir), "host_not_ready", /its key is missing/);
  assert.deepEqual((await readdir(dir)).sort(), ["secrets.json", "secrets.key.kept"]);
  await writeFile(keyFile, `${randomBytes(32).toString("hex")}\n`, { mode: 0o600 });
  await rejectsWith(SecretStore.open(dir), "host_not_ready", /written with another key/);
  await writeFile(keyFile, "short\n");
  const error = await rejectsWith(SecretStore.open(dir), "host_not_ready", /64 hexadecimal digits/);
  assert.ok(!error.message.includes("short"));
});

test("files that other users can read or write, and links, are refused", async (t) => {
  for (const name of ["secrets.json", "secrets.key"]) {
    const dir = await temporaryDirectory(t);
    const path = join(dir, name);
    await (await SecretStore.open(dir)).set(openai);
    for (const mode of [0o640, 0o604, 0o620, 0o666]) {
      await chmod(path, mode);
      await rejectsWith(SecretStore.open(dir), "host_not_ready", /other users can read or write it/);
    }
    await chmod(path, 0o600);
    await rename(path, `${path}.real`);
    await symlink(`${path}.real`, path);
    await rejectsWith(SecretStore.open(dir), "host_not_ready", /symbolic link/);
  }
});

test("a key from the service manager is used in place of the key file", async (t) => {
  const dir = await temporaryDirectory(t);
  const credentialsDirectory = join(dir, "credentials");
  const data = join(dir, "data");
  await mkdir(credentialsDirectory);
  await mkdir(data);
  const credential = join(credentialsDirectory, "forkd-secrets-key");
  await writeFile(credential, `${randomBytes(32).toString("hex")}\n`, { mode: 0o440 });
  await (await SecretStore.open(data, { credentialsDirectory })).set(openai);
  assert.deepEqual(await readdir(data), ["secrets.json"]);
  assert.equal((await SecretStore.open(data, { credentialsDirectory })).get(["OPENAI"])[0]?.value, value);
  await rejectsWith(SecretStore.open(data), "host_not_ready", /its key is missing/);
  await writeFile(credential, randomBytes(32));
  await rejectsWith(SecretStore.open(data, { credentialsDirectory }), "host_not_ready", /another key/);
});

test("a file of version 1 is read as docs/spec/secrets.md says", async (t) => {
  const dir = await temporaryDirectory(t);
  const key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  const file = {
    version: 1,
    key_id: "cee1a60b34837c05",
    secrets: [
      {
        name: "GOLDEN",
        hosts: ["api.example.com", "*.example.org:8443"],
        header: "X-Api-Key",
        format: "{}",
        placeholder: "forkd-secret-3538a46ff2f802ca06ed74d55342dd0d",
        created_at_unix: 1794886223,
        updated_at_unix: 1794886223,
        sealed: { nonce: "tan4srRgXaO5Jkcl", tag: "P6zXJE45/bXd5O/0S9CiKg==", data: "v//AipSe8+L8onm0" },
      },
    ],
  };
  await writeFile(join(dir, "secrets.key"), key, { mode: 0o600 });
  await writeFile(join(dir, "secrets.json"), JSON.stringify(file), { mode: 0o600 });
  assert.equal((await SecretStore.open(dir)).get(["GOLDEN"])[0]?.value, "golden-value");
});
