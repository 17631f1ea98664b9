import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { startRegistry, temporaryDirectory } from "@forkd/test-support";
import { runCli } from "../run-cli.ts";
import { runOnTerminal } from "../run-terminal.ts";

test("login keeps a password that the registry accepts, and logout removes it", async (t) => {
  const { address } = await startRegistry(t, { password: "s3cret" });
  const home = await temporaryDirectory(t);
  const env = { HOME: home };
  const path = join(home, ".docker/config.json");
  const login = ["login", address, "-u", "user", "--password-stdin"];
  assert.deepEqual(await runCli(login, { env, stdin: "s3cret\n" }), {
    code: 0,
    stdout: `${address}\n`,
    stderr: `Logged in to ${address} as user. The password is in ${path}, not encrypted.\n`,
  });
  const auth = Buffer.from("user:s3cret").toString("base64");
  assert.deepEqual(JSON.parse(await readFile(path, "utf8")), { auths: { [address]: { auth } } });
  const logout = await runCli(["logout", address, "--json"], { env });
  assert.deepEqual(JSON.parse(logout.stdout), { registry: address, removed_from: [path] });
  assert.deepEqual(JSON.parse(await readFile(path, "utf8")), { auths: {} });
  assert.match((await runCli(["logout", address], { env })).stderr, /There was no password/);
});

test("login keeps nothing that the registry refuses", async (t) => {
  const { address } = await startRegistry(t, { password: "s3cret" });
  const env = { HOME: await temporaryDirectory(t) };
  const wrong = await runCli(["login", address, "-u", "user", "--password-stdin"], { env, stdin: "other" });
  assert.equal(wrong.code, 5);
  assert.match(wrong.stderr, /does not accept the password of "user"/);
  assert.doesNotMatch(wrong.stderr, /forkd login/);
  assert.doesNotMatch(wrong.stderr, /other/);
  await assert.rejects(readFile(join(env.HOME, ".docker/config.json")), { code: "ENOENT" });
  const nowhere = await runCli(["login", "127.0.0.1:1", "-u", "u", "--password-stdin"], { env, stdin: "p" });
  assert.equal(nowhere.code, 8);
});

test("login says that a registry asks for no password", async (t) => {
  const { address } = await startRegistry(t);
  const env = { HOME: await temporaryDirectory(t) };
  const { stdout } = await runCli(["login", address, "-u", "u", "--password-stdin", "--json"], {
    env,
    stdin: "p",
  });
  const kept = join(env.HOME, ".docker/config.json");
  assert.deepEqual(JSON.parse(stdout), { registry: address, username: "u", checked: false, kept_in: kept });
});

test("login uses TLS with the authority that it is given", async (t) => {
  const { address, caFile } = await startRegistry(t, { tls: true, password: "p" });
  const env = { HOME: await temporaryDirectory(t) };
  const login = ["login", address, "-u", "user", "--password-stdin"];
  assert.equal((await runCli([...login, "--ca-file", caFile], { env, stdin: "p" })).code, 0);
  const without = await runCli(login, { env, stdin: "p" });
  assert.equal(without.code, 8);
  assert.match(without.stderr, /TLS/);
});

test("login asks on a terminal, and shows the name but not the password", async (t) => {
  const { address } = await startRegistry(t, { password: "s3cret" });
  const home = await temporaryDirectory(t);
  let step = 0;
  const { code, text } = await runOnTerminal(["login", address], {
    socket: "/nonexistent/s",
    cols: 120,
    env: { HOME: home },
    onOutput: (shown, child) => {
      if (step === 0 && shown.includes("User name")) child.stdin?.write(`${["user", ""][step++]}\r`);
      if (step === 1 && shown.includes("(not shown)")) child.stdin?.write(`${["", "s3cret"][step++]}\r`);
    },
  });
  assert.equal(code, 0, text);
  assert.match(text, /Logged in to .* as user/);
  assert.doesNotMatch(text, /s3cret/);
});

test("login without a password does not name options that it does not have", async () => {
  const { code, stderr } = await runCli(["login", "x", "-u", "u", "--password-stdin"], { stdin: "" });
  assert.equal(code, 2);
  assert.match(stderr, /The value is empty/);
  assert.doesNotMatch(stderr, /--from-file/);
});

test("login without what it needs is a usage error", async () => {
  for (const args of [
    ["login"],
    ["login", "ghcr.io"],
    ["login", "ghcr.io", "-u", "me"],
    ["login", "gh cr", "-u", "x"],
  ])
    assert.equal((await runCli(args)).code, 2, args.join(" "));
});
