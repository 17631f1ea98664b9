/** Credentials in the files and helpers that other tools use. */
import assert from "node:assert/strict";
import { chmod, mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { dropCredentials, findCredentials, keepCredentials } from "../src/credentials/find.ts";

const names = ["HOME", "PATH", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"];

/** An empty home. */
async function home(t: TestContext): Promise<string> {
  const directory = await temporaryDirectory(t);
  const before = Object.fromEntries(names.map((name) => [name, process.env[name]]));
  t.after(() => {
    for (const [name, value] of Object.entries(before)) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  });
  for (const name of names.slice(2)) delete process.env[name];
  process.env["HOME"] = directory;
  process.env["PATH"] = `${directory}/bin:${before["PATH"]}`;
  await mkdir(join(directory, "bin"));
  return directory;
}

async function write(path: string, content: unknown): Promise<void> {
  await mkdir(join(path, ".."), { recursive: true });
  await writeFile(path, typeof content === "string" ? content : JSON.stringify(content));
}

const basic = (text: string) => ({ auth: Buffer.from(text).toString("base64") });

test("a port of HTTPS in a key is the same registry", async (t) => {
  const directory = await home(t);
  const auths = { "example.com:443": basic("u:p"), "example.org:5000": basic("x:y") };
  await write(join(directory, ".docker/config.json"), { auths });
  assert.deepEqual(await findCredentials("example.com"), { username: "u", password: "p" });
  assert.equal(await findCredentials("example.org"), undefined);
});

test("keepCredentials() writes to the file that is searched first", async (t) => {
  const directory = await home(t);
  const path = join(directory, "podman.json");
  process.env["REGISTRY_AUTH_FILE"] = path;
  await write(path, { auths: { "ghcr.io": basic("me:old") } });
  assert.equal(await keepCredentials("ghcr.io", { username: "me", password: "new" }), path);
  assert.deepEqual(await findCredentials("ghcr.io"), { username: "me", password: "new" });
});

/** A helper that keeps one entry in a file. */
async function installHelper(directory: string, body?: string): Promise<void> {
  const path = join(directory, "bin/docker-credential-test");
  const script = `#!/bin/sh
read -r line
echo "$1 $line" >>"${directory}/calls"
case "$1" in
  store) echo "$line" >"${directory}/kept" ;;
  get) [ -e "${directory}/kept" ] || { echo "credentials not found in native keychain"; exit 1; }; cat "${directory}/kept" ;;
  erase) rm "${directory}/kept" ;;
esac
`;
  await writeFile(path, body ?? script);
  await chmod(path, 0o755);
}

test("findCredentials() reads Docker's file, with the old names of registries", async (t) => {
  const directory = await home(t);
  await write(join(directory, ".docker/config.json"), {
    auths: {
      "ghcr.io": basic("me:pass:word"),
      "https://index.docker.io/v1/": basic("hub:h"),
      "https://old.example.com/v2/": { username: "u", password: "p" },
      "token.example.com": { identitytoken: "t" },
      "empty.example.com": {},
      "odd.example.com": { auth: 5 },
    },
  });
  assert.deepEqual(await findCredentials("ghcr.io"), { username: "me", password: "pass:word" });
  assert.deepEqual(await findCredentials("docker.io"), { username: "hub", password: "h" });
  assert.deepEqual(await findCredentials("old.example.com"), { username: "u", password: "p" });
  assert.deepEqual(await findCredentials("token.example.com"), { identityToken: "t" });
  for (const none of ["empty.example.com", "odd.example.com", "other.example.com", "evil.ghcr.io"])
    assert.equal(await findCredentials(none), undefined, none);
});

test("findCredentials() reads Podman's file, the nearest namespace first", async (t) => {
  const directory = await home(t);
  await write(join(directory, ".config/containers/auth.json"), {
    auths: { "r.example.com": basic("all:1"), "r.example.com/team": basic("team:2") },
  });
  assert.deepEqual(await findCredentials("r.example.com", "team/tool"), { username: "team", password: "2" });
  assert.deepEqual(await findCredentials("r.example.com", "other/tool"), { username: "all", password: "1" });
});

test("keepCredentials() leaves the rest of the file, and dropCredentials() removes them", async (t) => {
  const directory = await home(t);
  const path = join(directory, ".docker/config.json");
  await write(path, { psFormat: "x", auths: { "a.example.com": basic("a:a") } });
  assert.equal(await keepCredentials("b.example.com", { username: "b", password: "ü" }), path);
  assert.deepEqual(await findCredentials("b.example.com"), { username: "b", password: "ü" });
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.deepEqual(await dropCredentials("b.example.com"), [path]);
  assert.deepEqual(JSON.parse(await readFile(path, "utf8")), {
    psFormat: "x",
    auths: { "a.example.com": basic("a:a") },
  });
  assert.deepEqual(await dropCredentials("b.example.com"), []);
});

test("a credential helper is asked, filled and emptied", async (t) => {
  const directory = await home(t);
  await installHelper(directory);
  process.env["DOCKER_CONFIG"] = join(directory, "elsewhere");
  await write(join(directory, "elsewhere/config.json"), { credsStore: "test" });
  assert.equal(await findCredentials("r.example.com"), undefined);
  assert.equal(
    await keepCredentials("r.example.com", { username: "<u>", password: "p" }),
    "docker-credential-test",
  );
  assert.deepEqual(await findCredentials("r.example.com"), { username: "<u>", password: "p" });
  assert.deepEqual(await dropCredentials("r.example.com"), ["docker-credential-test"]);
  const calls = (await readFile(join(directory, "calls"), "utf8")).trim().split("\n");
  assert.equal(calls.at(-1), "erase r.example.com");
});

test("a helper that fails, or is missing, is an error without its output", async (t) => {
  const directory = await home(t);
  await write(join(directory, ".docker/config.json"), { credHelpers: { "r.example.com": "test" } });
  await rejectsWith(findCredentials("r.example.com"), "host_not_ready", /no such program/);
  assert.equal(await findCredentials("other.example.com"), undefined);
  await installHelper(directory, "#!/bin/sh\necho secret; exit 3\n");
  const error = await rejectsWith(findCredentials("r.example.com"), "host_not_ready", /exit code 3/);
  assert.doesNotMatch(error.message, /secret/);
  await installHelper(directory, "#!/bin/sh\necho '{}'\n");
  await rejectsWith(findCredentials("r.example.com"), "host_not_ready", /no user name/);
});

test("files that cannot be read as credentials are errors that name them", async (t) => {
  const directory = await home(t);
  const path = join(directory, ".docker/config.json");
  for (const content of ["{", "[]", '{"credsStore":"../evil"}', '{"credHelpers":{"x":"a b"}}']) {
    await write(path, content);
    await rejectsWith(findCredentials("r.example.com"), "invalid_request", /config\.json/);
  }
});
