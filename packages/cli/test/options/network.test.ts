import assert from "node:assert/strict";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const flags = [
  ...["--network", "filtered", "--allow", "api.example.com:443", "--deny", "10.0.0.0/8"],
  ...["--allow", "udp 192.0.2.1:123", "--secret", "API_KEY", "--secret", "API_KEY", "--per-child-netns"],
  ...["--net-mbps", "2", "--net-limit-mib", "3", "--net-connections", "40"],
];
const fields = {
  network: {
    mode: "filtered",
    rules: ["deny 10.0.0.0/8", "allow api.example.com:443", "allow udp 192.0.2.1:123"],
  },
  secrets: ["API_KEY"],
  limits: { net_bps: 2_000_000, net_bytes: 3 << 20, net_connections: 40 },
};
const workspace = {
  id: idA,
  name: "dev",
  source_snapshot_tag: "py",
  status: "running",
  created_at_unix: 1,
  last_active_unix: 1,
};
const branch = {
  ...{ tag: "fan", status: "ready", branched_from: idA, children: [], diff_logical_bytes: 1 },
  ...{ mode: "live", pause_ms: 1, resumed_ms: 1, total_ms: 1 },
};

test("fork, run, branch and workspace create send the network, denies before allows", async () => {
  const exec = [{ type: "started", exec_id: 1, pid: 9 }];
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [sandbox(idA)] },
    "POST /v1/sandboxes": { status: 201, json: [sandbox(idA)] },
    "POST /v1/workspaces": { status: 201, json: workspace },
    [`POST /v1/sandboxes/${idA}/branch`]: { status: 201, json: branch },
    [`POST /v1/sandboxes/${idA}/exec`]: {
      lines: [...exec, { type: "exit", exit_code: 0, timed_out: false, duration_ms: 1 }],
    },
    [`DELETE /v1/sandboxes/${idA}`]: {},
  });
  const bodyOf = async (...args: string[]) => {
    daemon.asked.length = 0;
    const { code, stderr } = await runCli(args, daemon);
    assert.equal(code, 0, stderr);
    const sent = daemon.asked.find(({ method, path }) => method === "POST" && !path.endsWith("/exec"));
    return JSON.parse(sent?.body ?? "") as Record<string, unknown>;
  };
  assert.deepEqual(await bodyOf("fork", "py", ...flags), { snapshot_tag: "py", n: 1, ...fields });
  assert.deepEqual(await bodyOf("run", "py", ...flags, "--", "true"), {
    snapshot_tag: "py",
    n: 1,
    ...fields,
  });
  assert.deepEqual(await bodyOf("branch", idA, "-n", "2", ...flags), { n: 2, ...fields });
  assert.deepEqual(await bodyOf("workspace", "create", "dev", "--snapshot", "py", ...flags), {
    name: "dev",
    snapshot_tag: "py",
    ...fields,
  });
  assert.deepEqual(await bodyOf("branch", idA, "-n", "1", "--no-secrets"), { n: 1, secrets: [] });
  assert.deepEqual(await bodyOf("branch", idA, "--per-child-netns"), {});
  assert.deepEqual(await bodyOf("fork", "py", "--allow", "*"), {
    snapshot_tag: "py",
    n: 1,
    network: { rules: ["allow *"] },
  });
});

test("fork refuses wrong networks before it calls the daemon", async () => {
  await using daemon = await openFakeDaemon({});
  for (const [more, message] of [
    [["--network", "half"], /Allowed choices are none, filtered, open/],
    [["--network", "none", "--allow", "x"], /--allow has no effect with --network none/],
    [["--allow", "allow x"], /--allow .*such as|It must be like/],
    [["--allow", ""], /It must be like/],
    [["--allow", "a b"], /It must be like/],
    [["--net-connections", "0"], /whole number, 1 to 65536/],
  ] as const) {
    const { code, stderr } = await runCli(["fork", "py", ...more], daemon);
    assert.equal(code, 2, more.join(" "));
    assert.match(stderr, message);
  }
  assert.deepEqual(daemon.asked, []);
  const { code, stderr } = await runCli(["branch", idA, "--allow", "x"], daemon);
  assert.equal(code, 2);
  assert.match(stderr, /network, limits and timeouts are for children. Give -n too/);
});

test("keys create sends the ceiling of the network, and keys ls shows it", async () => {
  const key = { name: "bot", scope: "run", created_at_unix: 1, expired: false, key: "fk_x" };
  const network = { mode: "filtered", rules: ["deny *.example.org", "allow preset:pypi"] };
  await using daemon = await openFakeDaemon({
    "POST /v1/keys": { status: 201, json: key },
    "GET /v1/keys": { json: [{ ...key, network, secrets: ["A", "B"] }] },
  });
  const ceiling = ["--network", "filtered", "--allow", "preset:pypi", "--deny", "*.example.org"];
  await runCli(["keys", "create", "bot", ...ceiling, "--secret", "A", "--secret", "B"], daemon);
  assert.deepEqual(JSON.parse(daemon.asked[0]?.body ?? ""), {
    name: "bot",
    scope: "run",
    network,
    secrets: ["A", "B"],
  });
  const { stdout } = await runCli(["keys", "ls"], daemon);
  assert.match(stdout, /NETWORK +SECRETS .*\nbot .* filtered, 2 rules +A,B /);
});

test("info and ls --wide show jail, network and secrets", async () => {
  const shown = {
    ...sandbox(idA),
    jail: "user",
    network: { mode: "open", device: "slirp", note: "slower than a tap device" },
    secrets: ["A", "B"],
  };
  await using daemon = await openFakeDaemon({
    "GET /v1/sandboxes": { json: [shown, { ...sandbox(idA, 1), network: { mode: "none", device: "tap" } }] },
    [`GET /v1/sandboxes/${idA}`]: { json: shown },
    [`GET /v1/sandboxes/${idA}/execs`]: { json: [] },
    "GET /v1/stats": { json: { sandboxes: [] } },
    "GET /v1/snapshots": { json: [] },
    "GET /v1/snapshots/py/info": { json: { ...snapshot("py"), ancestors: [], dependents: [] } },
  });
  const { stdout, stderr } = await runCli(["info", idA], daemon);
  assert.match(
    stdout,
    /\njail +user\nnetwork +open, slirp \(slower than a tap device\)\nsecrets +A B\n/,
    stderr,
  );
  const wide = (await runCli(["ls", "--wide"], daemon)).stdout;
  assert.match(wide, /JAIL +NETWORK +SECRETS\n.* user +open, slirp +A,B\n.* - +none +-\n$/);
});

test("events shows what was denied and the command that allows it", async () => {
  const event = {
    id: "e-1",
    type: "network.denied",
    at_unix: 1_700_000_000,
    sandbox_id: idA,
    tag: "py",
    network: {
      at_unix: 1_700_000_000,
      event: "denied",
      protocol: "tcp",
      name: "a\u001b.example",
      port: 443,
      reason: "no rule allows it",
      suggestion: "allow a.example:443",
    },
  };
  await using daemon = await openFakeDaemon({
    "GET /v1/events": { bytes: `: listening\n\nid: e-1\ndata: ${JSON.stringify(event)}\n\n`, hold: true },
  });
  const { stdout } = await runCli(["events", "--type", "network.*"], {
    socket: daemon.socket,
    onStdout: (_, child) => child.kill("SIGINT"),
  });
  assert.equal(
    stdout,
    `2023-11-14T22:13:20.000Z  network.denied      ${idA}  py  tcp a .example:443: no rule allows it  to allow: forkd net ${idA} allow a.example:443\n`,
  );
});
