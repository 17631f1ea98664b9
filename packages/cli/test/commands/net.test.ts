import assert from "node:assert/strict";
import { test } from "node:test";
import type { NetworkLogEntry } from "@forkd/contract";
import { readDestinations, readRules } from "../../src/options/network.ts";
import { allowCommand, describeEntry } from "../../src/views/network-log.ts";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { jsonLines, runCli } from "../run-cli.ts";

const path = `/v1/sandboxes/${idA}/network`;
const network = {
  mode: "filtered",
  device: "tap",
  rules: [
    { rule: "deny *.example.org", from: "sandbox" },
    { rule: "allow api.example.com:443", from: "sandbox" },
    { rule: "allow preset:pypi", from: "snapshot" },
  ],
  ceilings: [{ from: "key", mode: "filtered", rules: ["allow *:443"] }],
  secrets: ["API_KEY"],
  counters: {
    connections: 12,
    open_connections: 2,
    denied: 3,
    failed: 1,
    bytes_sent: 2048,
    bytes_received: 5 << 20,
    queries: 7,
  },
};
const answers = {
  "GET /v1/sandboxes": { json: [sandbox(idA)] },
  [`GET /v1/sandboxes/${idA}`]: { json: sandbox(idA) },
  [`GET ${path}`]: { json: network },
  [`POST ${path}`]: { json: network },
};
const preset = { name: "pypi", rules: ["allow pypi.org:443"], origin: "bundled" };

test("net shows mode, device, ceilings, secrets, counters and rules in their order", async () => {
  await using daemon = await openFakeDaemon(answers);
  const { code, stdout, stderr } = await runCli(["net", "aa"], daemon);
  assert.deepEqual([code, stderr], [0, ""]);
  assert.match(stdout, /^mode +filtered\ndevice +tap\nat most +filtered; allow \*:443 \(of the key\)\n/);
  assert.match(stdout, /\nsecrets +API_KEY\nconnections +12, 2 open, 3 denied, 1 failed\n/);
  assert.match(stdout, /\ntraffic +2\.0 KiB sent, 5\.0 MiB received\nlook-ups +7\n\nRULE +FROM\n/);
  assert.match(stdout, /\ndeny \*\.example\.org +sandbox\n.*\nallow preset:pypi +snapshot\n$/);
  assert.equal(
    (await runCli(["net", idA, "-q"], daemon)).stdout,
    "deny *.example.org\nallow api.example.com:443\nallow preset:pypi\n",
  );
  assert.deepEqual(JSON.parse((await runCli(["net", idA, "--json"], daemon)).stdout), network);
});

test("net ID allow, deny, rm and mode send what was given", async () => {
  await using daemon = await openFakeDaemon(answers);
  const bodyOf = async (...words: string[]) => {
    const { code, stderr } = await runCli(["net", idA, ...words], daemon);
    assert.equal(code, 0, stderr);
    const { method, body } = daemon.asked.at(-1) ?? {};
    assert.equal(method, "POST");
    return JSON.parse(body ?? "") as unknown;
  };
  assert.deepEqual(await bodyOf("allow", "api.example.com:443"), { add: ["allow api.example.com:443"] });
  assert.deepEqual(await bodyOf("allow", "a.example:80,443", "preset:pypi", "udp", "192.0.2.1:123"), {
    add: ["allow a.example:80,443", "allow preset:pypi", "allow udp 192.0.2.1:123"],
  });
  assert.deepEqual(await bodyOf("deny", "10.0.0.0/8"), { add: ["deny 10.0.0.0/8"] });
  assert.deepEqual(await bodyOf("mode", "open"), { mode: "open" });
  assert.deepEqual(await bodyOf("rm", "api.example.com:443", "*.example.org"), {
    remove: ["allow api.example.com:443", "deny *.example.org"],
  });
  assert.deepEqual(await bodyOf("rm", "deny *.example.org"), { remove: ["deny *.example.org"] });
});

test("net ID rm names similar rules, and rules that are not of the sandbox", async () => {
  await using daemon = await openFakeDaemon(answers);
  const absent = await runCli(["net", idA, "rm", "api.example.com:44"], daemon);
  assert.equal(absent.code, 2);
  assert.match(absent.stderr, /has no rule "allow api\.example\.com:44"\n.*"allow api\.example\.com:443"\?/);
  const inherited = await runCli(["net", idA, "rm", "preset:pypi"], daemon);
  assert.equal(inherited.code, 2);
  assert.match(inherited.stderr, /it is a rule of the snapshot\n {2}Deny the destination/);
  assert.ok(!daemon.asked.some(({ method }) => method === "POST"));
});

test("net refuses wrong words before it calls the daemon", async () => {
  await using daemon = await openFakeDaemon(answers);
  for (const [words, message] of [
    [[], /Missing required argument 'id'/],
    [[idA, "permit", "x"], /Allowed choices are allow, deny, rm, mode, log/],
    [[idA, "allow"], /Give at least one rule to allow/],
    [[idA, "rm"], /Give at least one rule to remove/],
    [[idA, "allow", "allow x:443"], /Give the destination "x:443" without "allow"/],
    [[idA, "allow", "udp"], /Give a destination after "udp"/],
    [[idA, "mode", "half"], /Give one mode: none, filtered, open/],
    [[idA, "mode", "none", "open"], /Give one mode/],
    [[idA, "allow", "x", "-f"], /are for `forkd net ID log`/],
    [[idA, "log", "x"], /The log takes no rules/],
    [[idA, "log", "-n", "1001"], /whole number, 1 to 1000/],
    [["presets", "set", "x"], /Missing required argument 'rule'/],
  ] as const) {
    const { code, stderr } = await runCli(["net", ...words], daemon);
    assert.equal(code, 2, words.join(" "));
    assert.match(stderr, message);
  }
  assert.deepEqual(daemon.asked, []);
});

test("net notes that rules have no effect in mode none", async () => {
  await using daemon = await openFakeDaemon({
    ...answers,
    [`POST ${path}`]: { json: { ...network, mode: "none" } },
  });
  assert.match((await runCli(["net", idA, "allow", "x:1"], daemon)).stderr, /The mode is none, so no rule/);
});

const denied: NetworkLogEntry = {
  at_unix: 1_700_000_000.5,
  event: "denied",
  protocol: "tcp",
  name: "evil\u001b[31m.example\u202e",
  port: 443,
  reason: "no rule allows it",
  suggestion: "allow evil.example:443",
  suppressed: 4,
};
const closed: NetworkLogEntry = {
  at_unix: 1_700_000_001,
  event: "closed",
  protocol: "tcp",
  name: "pypi.org",
  address: "192.0.2.7",
  port: 443,
  via: "tls",
  rule: "allow pypi.org:443",
  bytes_sent: 1024,
  bytes_received: 2048,
  duration_ms: 1500,
};

test("net ID log prints a line for each entry, without control characters", async () => {
  await using daemon = await openFakeDaemon({ ...answers, [`GET ${path}/log`]: { lines: [closed, denied] } });
  const { code, stdout, stderr } = await runCli(["net", idA, "log", "-n", "5"], daemon);
  assert.equal(code, 0, stderr);
  assert.deepEqual(stdout.split("\n"), [
    "2023-11-14T22:13:21.000Z  closed     tcp  pypi.org:443 (192.0.2.7)  tls  1.0 KiB sent  2.0 KiB received  1.5 s  (allow pypi.org:443)",
    '2023-11-14T22:13:20.500Z  denied     tcp  evil [31m.example\ufffd:443  no rule allows it  would be allowed by "allow evil.example:443"  (4 more were left out before)',
    "",
  ]);
  assert.equal(stderr, `Run \`forkd net ${idA} allow evil.example:443\` to allow what was denied last.\n`);
  assert.ok(daemon.asked.at(-1)?.path.endsWith("/network/log?tail=5"));
  const json = await runCli(["net", idA, "log", "--json"], daemon);
  assert.deepEqual(jsonLines(json.stdout), [closed, denied]);
  assert.doesNotMatch(json.stdout, /\u202e/);
  assert.equal(daemon.asked.at(-1)?.path, `${path}/log`);
});

test("net ID log -f follows until it is interrupted", async () => {
  await using daemon = await openFakeDaemon({
    ...answers,
    [`GET ${path}/log`]: { lines: [closed], hold: true },
  });
  const { code, stdout, stderr } = await runCli(["net", idA, "log", "-f"], {
    socket: daemon.socket,
    onStdout: (_, child) => child.kill("SIGINT"),
  });
  assert.deepEqual([code, stderr], [130, ""]);
  assert.match(stdout, /pypi\.org:443/);
  assert.ok(daemon.asked.at(-1)?.path.endsWith("/network/log?follow=true"));
});

test("describeEntry() brackets IPv6 addresses and shows look-ups", () => {
  const at = { at_unix: 0, event: "failed", protocol: "tcp" } as const;
  assert.match(describeEntry({ ...at, address: "2001:db8::1", port: 443 }), / \[2001:db8::1\]:443$/);
  const resolved = describeEntry({ ...at, event: "resolved", protocol: "dns", name: "a.example" });
  assert.match(resolved, /resolved +dns {2}a\.example$/);
});

test("allowCommand() is only made of plain rules", () => {
  assert.equal(allowCommand("sb-1", "allow udp a.example:53"), "forkd net sb-1 allow udp a.example:53");
  assert.equal(allowCommand("sb-1", "allow [2001:db8::1]:443"), "forkd net sb-1 allow '[2001:db8::1]:443'");
  for (const wrong of [
    "allow a;reboot:1",
    "allow $(reboot):1",
    "allow a b c",
    "deny x",
    "allow 'x'",
    undefined,
  ])
    assert.equal(allowCommand("sb-1", wrong), undefined, wrong);
});

test("readRules() reads actions and protocols, in one word or in several", () => {
  assert.deepEqual(readRules(["deny 10.0.0.0/8", "udp", "a.example:53", "b.example"]), [
    { action: "deny", destination: "10.0.0.0/8" },
    { action: undefined, destination: "udp a.example:53" },
    { action: undefined, destination: "b.example" },
  ]);
  assert.deepEqual(readDestinations(["  tcp   a.example:1 "]), ["tcp a.example:1"]);
  assert.throws(() => readRules(["allow"]), /after "allow"/);
});

test("net presets lists, shows, sets and removes presets", async () => {
  const absent = { error: 'Cannot remove preset "b"', code: "not_found", details: {} };
  await using daemon = await openFakeDaemon({
    "GET /v1/network/presets": { json: [preset, { ...preset, name: "mine", origin: "added" }] },
    "POST /v1/network/presets": { json: preset },
    "DELETE /v1/network/presets/a": {},
    "DELETE /v1/network/presets/b": { status: 404, json: absent },
  });
  const list = await runCli(["net", "presets"], daemon);
  assert.match(list.stdout, /^NAME +ORIGIN +RULES\npypi +bundled +allow pypi\.org:443\nmine +added/);
  assert.equal((await runCli(["net", "presets", "-q"], daemon)).stdout, "pypi\nmine\n");
  assert.equal((await runCli(["net", "presets", "show", "pypi"], daemon)).stdout, "allow pypi.org:443\n");
  assert.deepEqual(
    JSON.parse((await runCli(["net", "presets", "show", "pypi", "--json"], daemon)).stdout),
    preset,
  );
  const unknown = await runCli(["net", "presets", "show", "pypy"], daemon);
  assert.equal(unknown.code, 3);
  assert.match(unknown.stderr, /There is no preset "pypy"\n {2}Did you mean "pypi"\?/);
  const set = await runCli(["net", "presets", "set", "pypi", "pypi.org:443", "deny x.example"], daemon);
  assert.deepEqual([set.code, set.stdout, set.stderr], [0, "pypi\n", "Preset pypi has 1 rule.\n"]);
  assert.deepEqual(JSON.parse(daemon.asked.at(-1)?.body ?? ""), {
    name: "pypi",
    rules: ["allow pypi.org:443", "deny x.example"],
  });
  const removed = await runCli(["net", "presets", "rm", "a", "b"], daemon);
  assert.deepEqual([removed.code, removed.stdout], [3, "a\n"]);
  assert.match(removed.stderr, /Cannot remove preset "b"/);
});

test("completion completes actions, presets as rules, and names of secrets", async () => {
  await using daemon = await openFakeDaemon({
    ...answers,
    "GET /v1/network/presets": { json: [preset] },
    "GET /v1/secrets": { json: [{ name: "API_KEY" }, { name: "OTHER" }] },
  });
  const complete = async (...words: string[]) =>
    (await runCli(["__complete", "--", ...words], daemon)).stdout.split("\n").filter(Boolean);
  assert.deepEqual(await complete("net", ""), ["presets", idA]);
  assert.deepEqual(await complete("net", idA, ""), ["allow", "deny", "rm", "mode", "log"]);
  assert.deepEqual(await complete("net", idA, "allow", "p"), ["preset:pypi"]);
  assert.deepEqual(await complete("net", "presets", "show", ""), ["pypi"]);
  assert.deepEqual(await complete("fork", "--allow", "preset:"), ["preset:pypi"]);
  assert.deepEqual(await complete("fork", "--network", "f"), ["filtered"]);
  assert.deepEqual(await complete("fork", "--secret", "A"), ["API_KEY"]);
  assert.deepEqual(await complete("secrets", ""), ["set", "ls", "rm"]);
  assert.deepEqual(await complete("secrets", "rm", "O"), ["OTHER"]);
});
