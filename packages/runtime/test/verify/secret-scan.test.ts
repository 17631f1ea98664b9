import assert from "node:assert/strict";
import { test } from "node:test";
import { secretInFile, secretInVariable, secretsInEnvironment } from "../../src/verify/secret-scan.ts";

const random = "q7Zt1vX9bN3mK5wR8yL2";

/** Put together here, so that a scanner of this repository does not find them. */
const key = (prefix: string, length: number) => prefix + "aB3dE5fG7h".repeat(8).slice(0, length);

test("secretInVariable() recognises keys by their form, whatever the variable", () => {
  for (const value of [
    key("ghp_", 36),
    key("sk-", 40),
    key("glpat-", 20),
    key("xoxb-", 24),
    key("AIza", 35),
    key("hf_", 34),
    `AKIA${"A2B3C4D5".repeat(2)}`,
    "postgres://user:hunter2@db/app",
    `${["-----BEGIN", "PRIVATE KEY-----"].join(" ")}\nMIIE`,
  ])
    assert.ok(secretInVariable("HOME", value), value.slice(0, 8));
});

test("secretInVariable() recognises names of secrets", () => {
  for (const name of ["API_KEY", "DB_PASSWORD", "token", "AWS_SECRET_ACCESS_KEY", "GH_TOKEN", "my-secret"])
    assert.ok(secretInVariable(name, random), name);
});

test("secretInVariable() leaves placeholders, paths, numbers and other names alone", () => {
  for (const value of [
    `forkd-secret-${"0f".repeat(16)}`,
    "changeme",
    "placeholder",
    "xxxxxxxx",
    "********",
    "<your token>",
    "${SECRET}",
    "your-token-here",
    "/run/secrets/token",
    "86400000",
    "short",
  ])
    assert.equal(secretInVariable("API_TOKEN", value), undefined, value);
  for (const name of ["PATH", "KEYBOARD", "TOKENIZERS_PARALLELISM", "PASSENGER", "AUTHOR", "MONKEY"])
    assert.equal(secretInVariable(name, random), undefined, name);
});

test("secretsInEnvironment() names variables and never their values", () => {
  const found = secretsInEnvironment(`PATH=/bin\0API_TOKEN=${random}\0=x\0broken`);
  assert.deepEqual(
    found.map(({ name }) => name),
    ["API_TOKEN"],
  );
  assert.ok(!JSON.stringify(found).includes(random));
});

test("secretInFile() recognises keys, settings and random tokens", () => {
  assert.match(
    secretInFile("/root/.ssh/id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\n") ?? "",
    /private key/,
  );
  assert.match(secretInFile("/app/.env", `# x\nexport DB_PASSWORD="${random}"\n`) ?? "", /DB_PASSWORD/);
  assert.match(secretInFile("/root/api-token", `${random}\n`) ?? "", /random value/);
  assert.equal(secretInFile("/root/api-token", "changeme\n"), undefined);
  assert.equal(secretInFile("/etc/token.conf", "timeout=30\n"), undefined);
  assert.equal(secretInFile("/etc/secret.pem", "-----BEGIN CERTIFICATE-----\nMIIE\n"), undefined);
  assert.equal(secretInFile("/root/password-policy", "aaaaaaaaaaaaaaaaaaaaaaaa"), undefined);
});
