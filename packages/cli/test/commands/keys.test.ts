import assert from "node:assert/strict";
import { test } from "node:test";
import { parseExpiry } from "../../src/options/arguments.ts";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const info = {
  name: "ci",
  scope: "run",
  created_at_unix: Math.floor(Date.now() / 1000) - 3600 * 5,
  expires_at_unix: 1_893_456_000,
  expired: false,
  last_used_unix: Math.floor(Date.now() / 1000) - 3600 * 3,
  max_sandboxes: 5,
  max_memory_mib: 2048,
};

test("keys create prints the key to stdout and its description to stderr", async () => {
  const created = { ...info, key: "fk_secret" };
  await using daemon = await openFakeDaemon({ "POST /v1/keys": { status: 201, json: created } });
  const before = Math.floor(Date.now() / 1000);
  const limits = ["--max-sandboxes", "5", "--max-memory-mib", "2048"];
  const plain = await runCli(
    ["keys", "create", "ci", "--scope", "read", "--expires", "30d", ...limits],
    daemon,
  );
  assert.deepEqual(plain, {
    code: 0,
    stdout: "fk_secret\n",
    stderr: "Key ci has the scope run, until 2030-01-01T00:00:00Z. It is not shown again.\n",
  });
  const { expires_at_unix: expires, ...rest } = JSON.parse(daemon.asked[0]?.body ?? "") as Record<
    string,
    unknown
  >;
  assert.deepEqual(rest, { name: "ci", scope: "read", max_sandboxes: 5, max_memory_mib: 2048 });
  assert.ok(Number(expires) >= before + 30 * 86_400);
  await runCli(["keys", "create", "ci", "--expires", "2100-01-31T12:00:00+01:00"], daemon);
  assert.deepEqual(JSON.parse(daemon.asked[1]?.body ?? ""), {
    name: "ci",
    scope: "run",
    expires_at_unix: Date.parse("2100-01-31T11:00:00Z") / 1000,
  });
  assert.deepEqual(await runCli(["keys", "create", "ci", "-q"], daemon), {
    code: 0,
    stdout: "fk_secret\n",
    stderr: "",
  });
  const json = await runCli(["keys", "create", "ci", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), created);
});

test("keys ls shows scope, limits, last use and expiry, but not the key", async () => {
  const bare = {
    name: "old",
    scope: "admin",
    created_at_unix: 1,
    expired: true,
    expires_at_unix: 1_600_000_000,
  };
  const free = { name: "z", scope: "read", created_at_unix: 1, expired: false };
  await using daemon = await openFakeDaemon({ "GET /v1/keys": { json: [info, bare, free] } });
  const { code, stdout } = await runCli(["keys", "ls"], daemon);
  assert.equal(code, 0);
  const lines = stdout.trim().split("\n");
  assert.match(lines[0] ?? "", /^NAME +SCOPE +SANDBOXES +MEMORY +NETWORK +SECRETS +CREATED +USED +EXPIRES$/);
  assert.match(lines[1] ?? "", /^ci +run +5 +2048 MiB +- +- +5h ago +3h ago +2030-01-01T00:00:00Z$/);
  assert.match(lines[2] ?? "", /^old +admin +- +- .* - +2020-09-13T12:26:40Z \(expired\)$/);
  assert.match(lines[3] ?? "", /^z +read .* never$/);
  assert.equal((await runCli(["keys", "ls", "-q"], daemon)).stdout, "ci\nold\nz\n");
  assert.deepEqual(JSON.parse((await runCli(["keys", "ls", "--json"], daemon)).stdout), [info, bare, free]);
  const rows = await runCli(["__complete", "--", "keys", "rm", ""], daemon);
  assert.equal(rows.stdout, "ci\nold\nz\n");
  assert.equal((await runCli(["__complete", "--", "keys", ""], daemon)).stdout, "create\nls\nrm\n");
  const scopes = await runCli(["__complete", "--", "keys", "create", "x", "--scope", "r"], daemon);
  assert.equal(scopes.stdout, "read\nrun\n");
});

test("keys rm removes each key and exits with the code of the first failure", async () => {
  const absent = { error: 'No key has the name "b"', code: "key_not_found", details: {} };
  await using daemon = await openFakeDaemon({
    "DELETE /v1/keys/a": {},
    "DELETE /v1/keys/b": { status: 404, json: absent },
  });
  const { code, stdout, stderr } = await runCli(["keys", "rm", "a", "b"], daemon);
  assert.deepEqual([code, stdout], [3, "a\n"]);
  assert.match(stderr, /No key has the name "b"\n {2}Run `forkd keys ls`/);
  const json = await runCli(["keys", "rm", "a", "--json"], daemon);
  assert.deepEqual(JSON.parse(json.stdout), [{ name: "a", removed: true }]);
});

test("keys refuses invalid options before it calls the daemon", async () => {
  for (const [args, message] of [
    [["create"], /Missing required argument 'name'/],
    [["create", "a", "--scope", "root"], /Allowed choices are read, run, admin/],
    [["create", "a", "--expires", "soon"], /duration with a unit/],
    [["create", "a", "--expires", "90"], /duration with a unit/],
    [["create", "a", "--expires", "2001-01-01T00:00:00Z"], /in the future/],
    [["create", "a", "--max-sandboxes", "0"], /whole number/],
    [["rm"], /Missing required argument 'name'/],
  ] as const) {
    const { code, stderr } = await runCli(["keys", ...args]);
    assert.equal(code, 2, args.join(" "));
    assert.match(stderr, message);
  }
});

test("a missing scope exits 5, a wrong token exits 5 with a remedy", async () => {
  await using daemon = await openFakeDaemon({
    "GET /v1/keys": {
      status: 403,
      json: { error: 'This needs the scope "admin"; the key "ci" has "run"', code: "forbidden", details: {} },
    },
    "GET /v1/snapshots": {
      status: 401,
      json: { error: "The token is wrong", code: "unauthenticated", details: {} },
    },
  });
  const forbidden = await runCli(["keys", "ls"], daemon);
  assert.equal(forbidden.code, 5);
  assert.match(forbidden.stderr, /needs the scope "admin"; the key "ci" has "run"/);
  const unknown = await runCli(["images"], daemon);
  assert.equal(unknown.code, 5);
  assert.match(unknown.stderr, /FORKD_TOKEN.*forkd keys create/);
});

test("parseExpiry() accepts times and durations with a unit", () => {
  assert.equal(parseExpiry("1h30m", 0).getTime(), 5_400_000);
  assert.equal(parseExpiry("2030-01-01T00:00:00Z", 0).getTime(), 1_893_456_000_000);
  for (const bad of ["", "90", "2030-01-01", "2030-13-01T00:00:00Z", "-1d", "tomorrow"])
    assert.throws(() => parseExpiry(bad, 0), { code: "commander.invalidArgument" }, bad);
});
