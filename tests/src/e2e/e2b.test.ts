/** E2B's control plane, through its official client. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { access, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import {
  AuthenticationError,
  BuildError,
  NotFoundError,
  Sandbox,
  SandboxError,
  Template,
  waitForFile,
} from "e2b";
import { e2bKey, startE2bDaemon, type E2bDaemon } from "../support/e2b.ts";

let daemon: E2bDaemon;
let options: E2bDaemon["options"];

before(async () => {
  daemon = await startE2bDaemon();
  ({ options } = daemon);
});
after(() => daemon[Symbol.asyncDispose]());

type Answer = { status: number; headers: http.IncomingHttpHeaders; text: string };
type Ask = { method?: string; headers?: Record<string, string>; body?: unknown };

function ask(path: string, { method = "GET", headers = {}, body }: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request(daemon.url + path, { method, headers, agent: false });
    request.once("error", reject);
    request.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
      });
    });
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** forkd's own API. */
async function own<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers = { authorization: `Bearer ${daemon.token}` };
  const { text } = await ask(path, { method, headers, body });
  return JSON.parse(text) as T;
}
type Own = {
  state: string;
  labels: Record<string, string>;
  expires_at_unix?: number;
  auto_resume?: boolean;
  on_timeout?: string;
  owner?: string;
};
const ownInfo = (id: string) => own<Own>("GET", `/v1/sandboxes/${id}`);

async function run(id: string, command: string): Promise<string> {
  const body = { args: ["/bin/sh", "-c", command] };
  const { stdout } = await own<{ stdout: string }>("POST", `/v1/sandboxes/${id}/exec`, body);
  return stdout.trim();
}

const e2b = (path: string, { headers, ...rest }: Ask = {}) =>
  ask(path, { ...rest, headers: { "x-api-key": options.apiKey, ...headers } });
const parsed = <T>({ text }: Answer) => JSON.parse(text) as T;

test("a sandbox has the metadata, the variables and the timeout that it was created with", async () => {
  const metadata = { user: "42", "with space & = ü": "any text ☃ %20", long: "x".repeat(1000) };
  const sandbox = await Sandbox.create({ ...options, metadata, envs: { GREETING: "hi" }, timeoutMs: 60_000 });
  const info = await sandbox.getInfo();
  assert.equal(info.sandboxId, sandbox.sandboxId);
  assert.equal(info.name, "base");
  assert.equal(info.templateId, "python");
  assert.deepEqual(info.metadata, metadata);
  assert.equal(info.state, "running");
  // The time counts from the moment when the sandbox is ready.
  const lifeMs = info.endAt.getTime() - info.startedAt.getTime();
  assert.ok(lifeMs >= 60_000 && lifeMs < 120_000, String(lifeMs));
  assert.ok(info.cpuCount >= 1 && info.memoryMB > 0);
  assert.equal(await run(sandbox.sandboxId, "echo $GREETING $E2B_SANDBOX"), "hi true");
  const { labels } = await ownInfo(sandbox.sandboxId);
  assert.deepEqual(labels, { user: "42" });
  assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.localhost:\\d+$`));

  const listed = await Sandbox.list({ ...options, query: { metadata } }).nextItems();
  assert.deepEqual(
    listed.map((each) => each.sandboxId),
    [sandbox.sandboxId],
  );
  const none = { "with space & = ü": "any text" };
  assert.deepEqual(await Sandbox.list({ ...options, query: { metadata: none } }).nextItems(), []);
  assert.equal(await sandbox.kill(), true);
  assert.equal(await Sandbox.kill(sandbox.sandboxId, options), false);
  await assert.rejects(Sandbox.getInfo(sandbox.sandboxId, options), NotFoundError);
});

test("timeouts are set from now, and connect only extends them", async () => {
  const sandbox = await Sandbox.create({ ...options, timeoutMs: 30_000 });
  const { sandboxId: id } = sandbox;
  const left = async () => ((await ownInfo(id)).expires_at_unix ?? 0) - Date.now() / 1000;
  await sandbox.setTimeout(300_000);
  assert.ok((await left()) > 290);
  await Sandbox.connect(id, { ...options, timeoutMs: 10_000 });
  assert.ok((await left()) > 290);
  await Sandbox.connect(id, { ...options, timeoutMs: 600_000 });
  assert.ok((await left()) > 590);
  await sandbox.setTimeout(20_000);
  assert.ok((await left()) <= 20);
  const refreshed = await e2b(`/sandboxes/${id}/refreshes`, { method: "POST", body: { duration: 100 } });
  assert.equal(refreshed.status, 204);
  assert.ok((await left()) > 90);
  await assert.rejects(sandbox.setTimeout(0), SandboxError);
  await sandbox.kill();
});

test("pause keeps the id, and connect resumes with the same token", async () => {
  const sandbox = await Sandbox.create({ ...options, lifecycle: { onTimeout: "pause", autoResume: true } });
  const { sandboxId: id } = sandbox;
  const { auto_resume: isWoken, on_timeout: then } = await ownInfo(id);
  assert.deepEqual([isWoken, then], [true, "pause"]);
  await run(id, "echo kept >/root/kept");
  assert.equal(await sandbox.pause(), true);
  assert.equal(await sandbox.pause(), false);
  const paused = await Sandbox.list({ ...options, query: { state: ["paused"] } }).nextItems();
  assert.deepEqual(
    paused.map((each) => [each.sandboxId, each.state]),
    [[id, "paused"]],
  );
  const again = await e2b(`/v2/sandboxes/${id}/connect`, { method: "POST", body: { timeout: 60 } });
  assert.equal(again.status, 201);
  const first = parsed<{ envdAccessToken: string }>(await e2b(`/sandboxes/${id}`));
  assert.equal(parsed<{ envdAccessToken: string }>(again).envdAccessToken, first.envdAccessToken);
  assert.equal(await run(id, "cat /root/kept"), "kept");
  const running = await e2b(`/sandboxes/${id}/connect`, { method: "POST", body: { timeout: 60 } });
  assert.equal(running.status, 200);
  assert.equal((await e2b(`/sandboxes/${id}/resume`, { method: "POST", body: {} })).status, 409);
  const cold = await e2b(`/sandboxes/${id}/pause`, { method: "POST", body: { memory: false } });
  assert.equal(cold.status, 400);
  assert.match(parsed<{ message: string }>(cold).message, /^memory: false is not supported/);
  await sandbox.kill();
});

test("lists have pages, and a page survives the end of its last sandbox", async () => {
  const made: Sandbox[] = [];
  for (let at = 0; at < 3; at++)
    made.push(await Sandbox.create({ ...options, metadata: { batch: "pages" } }));
  const pages = Sandbox.list({ ...options, query: { metadata: { batch: "pages" } }, limit: 2 });
  const first = await pages.nextItems();
  assert.deepEqual(
    first.map((each) => each.sandboxId),
    [made[2]?.sandboxId, made[1]?.sandboxId],
  );
  assert.equal(pages.hasNext, true);
  await made[1]?.kill();
  const second = await pages.nextItems();
  assert.deepEqual(
    second.map((each) => each.sandboxId),
    [made[0]?.sandboxId],
  );
  assert.equal(pages.hasNext, false);
  await Promise.all([made[0]?.kill(), made[2]?.kill()]);
  const records = join(daemon.dataDir, "e2b", "sandboxes");
  await until("the records of killed sandboxes are gone", async () => {
    const kept = await readdir(records);
    return made.every(({ sandboxId: id }) => !kept.includes(`${id}.json`));
  });
});

test("a snapshot outlives its sandbox, and sandboxes are created from it", async () => {
  const sandbox = await Sandbox.create({ ...options, metadata: { of: "snapshot" } });
  await run(sandbox.sandboxId, "echo before >/root/state");
  const snapshot = await sandbox.createSnapshot({ name: "my-state" });
  assert.deepEqual(snapshot.names, ["my-state"]);
  const listed = await Sandbox.listSnapshots({ ...options, sandboxId: sandbox.sandboxId }).nextItems();
  assert.deepEqual(listed, [snapshot]);
  await sandbox.kill();
  for (const template of [snapshot.snapshotId, "my-state"]) {
    const child = await Sandbox.create(template, options);
    assert.equal(await run(child.sandboxId, "cat /root/state"), "before");
    await child.kill();
  }
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, options), true);
  assert.equal(await Sandbox.deleteSnapshot(snapshot.snapshotId, options), false);
  await assert.rejects(Sandbox.create("my-state", options), /404.*Cannot find template "my-state"/);
});

test("fork(count) makes sandboxes with their own tokens, and its snapshot goes with the last of them", async () => {
  const sandbox = await Sandbox.create({ ...options, metadata: { of: "fork" }, envs: { KEPT: "yes" } });
  await run(sandbox.sandboxId, "echo one >/root/state");
  const answer = await e2b(`/sandboxes/${sandbox.sandboxId}/fork`, { method: "POST", body: { count: 2 } });
  assert.equal(answer.status, 201);
  type Forked = { sandbox: { sandboxID: string; envdAccessToken: string } };
  const forked = parsed<Forked[]>(answer).map((each) => each.sandbox);
  assert.equal(new Set(forked.map((each) => each.envdAccessToken)).size, 2);
  for (const { sandboxID: id } of forked) {
    assert.equal(await run(id, "cat /root/state; echo $KEPT"), "one\nyes");
    assert.deepEqual((await Sandbox.getInfo(id, options)).metadata, { of: "fork" });
  }
  const bad = await e2b(`/sandboxes/${sandbox.sandboxId}/fork`, { method: "POST", body: { count: 0 } });
  assert.equal(bad.status, 400);
  assert.deepEqual(await Sandbox.listSnapshots({ ...options, sandboxId: sandbox.sandboxId }).nextItems(), []);
  await Promise.all([...forked.map(({ sandboxID }) => Sandbox.kill(sandboxID, options)), sandbox.kill()]);
  await until("the snapshot of the fork is gone", async () => {
    const all = await own<{ tag: string }[]>("GET", "/v1/snapshots");
    return all.every(({ tag }) => tag === "python");
  });
});

test("network options become rules, and what has no counterpart is refused by name", async () => {
  type Network = { mode: string; rules: { rule: string; from: string }[] };
  const rulesOf = async (id: string) => {
    const { mode, rules } = await own<Network>("GET", `/v1/sandboxes/${id}/network`);
    return { mode, rules: rules.filter(({ from }) => from === "sandbox").map(({ rule }) => rule) };
  };
  const network = { allowOut: ["192.0.2.7", "api.example.com"], denyOut: ["0.0.0.0/0"] };
  const sandbox = await Sandbox.create({ ...options, network });
  const closed = ["allow 192.0.2.7", "allow api.example.com", "deny *"];
  assert.deepEqual(await rulesOf(sandbox.sandboxId), { mode: "filtered", rules: closed });
  const { allowOut, denyOut } = (await sandbox.getInfo()).network ?? {};
  assert.deepEqual({ allowOut, denyOut }, network);
  await sandbox.updateNetwork({ denyOut: ["198.51.100.0/24"] });
  assert.deepEqual(await rulesOf(sandbox.sandboxId), { mode: "open", rules: ["deny 198.51.100.0/24"] });
  await sandbox.updateNetwork({ allowInternetAccess: false });
  assert.deepEqual(await rulesOf(sandbox.sandboxId), { mode: "filtered", rules: ["deny *"] });
  await sandbox.kill();
  const asked: [Record<string, unknown>, RegExp][] = [
    [
      { network: { allowOut: ["api.example.com"] } },
      /network.allowOut: the host name "api.example.com" needs/,
    ],
    [{ network: { denyOut: ["example.com"] } }, /network.denyOut: "example.com" is not an IP address/],
    [{ network: { egressProxy: { host: "x" } } }, /network.egressProxy is not supported/],
    [{ mcp: { x: {} } }, /mcp is not supported/],
    [{ iam: { tokens: [] } }, /iam is not supported/],
    [{ volumeMounts: [{ name: "v", path: "/v" }] }, /volumeMounts is not supported/],
    [{ autoPause: true, autoPauseMemory: false }, /autoPauseMemory: false is not supported/],
    [{ envVars: { "1x": "y" } }, /envVars: "1x" is not a name of a variable/],
    [{ timeout: 0 }, /timeout: must be at least 1 s/],
  ];
  for (const [fields, message] of asked) {
    const body = { templateID: "base", ...fields };
    const answer = await e2b("/v2/sandboxes", { method: "POST", body });
    const error = parsed<{ code: number; message: string }>(answer);
    assert.deepEqual([answer.status, error.code], [400, 400], answer.text);
    assert.match(error.message, message);
  }
});

test("metrics are those of the guest, and there are none before it was created", async () => {
  const sandbox = await Sandbox.create(options);
  const [metrics] = await sandbox.getMetrics();
  assert.ok(metrics && metrics.memTotal > 0 && metrics.memUsed > 0 && metrics.memUsed < metrics.memTotal);
  assert.ok(metrics.diskTotal > metrics.diskUsed && metrics.diskUsed > 0);
  assert.deepEqual(await sandbox.getMetrics({ end: new Date(Date.now() - 3_600_000) }), []);
  const many = await e2b(`/sandboxes/metrics?sandbox_ids=${sandbox.sandboxId}`);
  assert.deepEqual(Object.keys(parsed<{ sandboxes: object }>(many).sandboxes), [sandbox.sandboxId]);
  const logs = parsed<{ logs: unknown[] }>(await e2b(`/v2/sandboxes/${sandbox.sandboxId}/logs`));
  assert.ok(Array.isArray(logs.logs));
  await sandbox.kill();
});

test("keys of forkd are keys of E2B, with their scopes, limits and names", async () => {
  const create = (name: string, rest: object) =>
    own<{ key: string }>("POST", "/v1/keys", { name, ...rest }).then(({ key }) => key);
  const agent = { ...options, apiKey: e2bKey(await create("agent", { max_sandboxes: 1 })) };
  const reader = { ...options, apiKey: await create("reader", { scope: "read" }) };
  const sandbox = await Sandbox.create(agent);
  assert.equal((await ownInfo(sandbox.sandboxId)).owner, "agent");
  await assert.rejects(Sandbox.create({ ...agent, retries: 0 }), /429|limit/i);
  assert.equal((await Sandbox.list(reader).nextItems()).length, 1);
  await assert.rejects(Sandbox.create(reader), /403/);
  await assert.rejects(Sandbox.kill(sandbox.sandboxId, reader), /403/);
  await assert.rejects(Sandbox.create({ ...options, apiKey: "e2b_00" }), AuthenticationError);
  const none = await ask("/v2/sandboxes");
  assert.equal(none.status, 401);
  assert.equal(parsed<{ code: number }>(none).code, 401);
  await sandbox.kill();
});

test("what forkd refuses in its own API is refused here too", async () => {
  const create = (body: object) =>
    e2b("/sandboxes", { method: "POST", body: { templateID: "python", ...body } });
  for (const A of ["x\0y", "x".repeat(40_000)]) assert.equal((await create({ envVars: { A } })).status, 400);
  const asked = parsed<{ templateID: string; buildID: string }>(
    await e2b("/v3/templates", { method: "POST", body: { name: "refused" } }),
  );
  const build = `/v2/templates/${asked.templateID}/builds/${asked.buildID}`;
  assert.equal((await e2b(build, { method: "POST", body: { fromImage: "constructor" } })).status, 400);
  assert.deepEqual(parsed<unknown[]>(await e2b("/v2/sandboxes")), []);
});

test("unknown templates, routes and sandboxes are errors that clients can read", async () => {
  await assert.rejects(
    Sandbox.create("no-such-template", options),
    /404: Cannot find template "no-such-template"/,
  );
  for (const [path, status] of [
    ["/sandboxes/none", 404],
    ["/sandboxes/none/unknown/route", 404],
    ["/volumes", 400],
    ["/templates/aliases/none", 404],
  ] as const) {
    const answer = await e2b(path);
    assert.deepEqual([path, answer.status, parsed<{ code: number }>(answer).code], [path, status, status]);
  }
  const broken = await e2b("/v2/sandboxes?metadata=%2525E0");
  assert.equal(broken.status, 400);
});

test("a sandbox of forkd's own API is listed, and a client that connects gets a token", async () => {
  const [made] = await own<{ id: string }[]>("POST", "/v1/sandboxes", {
    snapshot_tag: "python",
    labels: { made: "by-forkd" },
  });
  const id = made?.id ?? assert.fail("no sandbox");
  const headers = { "e2b-sandbox-id": id, "e2b-sandbox-port": "49983" };
  assert.equal((await ask("/health", { headers })).status, 502);
  const info = await Sandbox.getInfo(id, options);
  assert.deepEqual([info.templateId, info.metadata], ["python", { made: "by-forkd" }]);
  const connect = () => e2b(`/sandboxes/${id}/connect`, { method: "POST", body: {} });
  const tokens = (await Promise.all([connect(), connect(), connect()])).map(
    (answer) => parsed<{ envdAccessToken: string }>(answer).envdAccessToken,
  );
  assert.equal(new Set(tokens).size, 1, "clients that connect at the same time have the same token");
  const sandbox = await Sandbox.connect(id, options);
  assert.ok(parsed<{ envdAccessToken?: string }>(await e2b(`/sandboxes/${id}`)).envdAccessToken);
  assert.equal((await ownInfo(id)).expires_at_unix, undefined);
  await sandbox.kill();
});

test("a workspace of forkd can be used, but not ended", async () => {
  await own("POST", "/v1/workspaces", { name: "kept", snapshot_tag: "python" });
  const { id } = await own<{ id: string }>("GET", "/v1/workspaces/kept");
  await own("POST", "/v1/workspaces/kept/suspend", {});
  assert.equal((await ownInfo(id)).state, "paused");
  const sandbox = await Sandbox.connect(id, options);
  assert.deepEqual([(await ownInfo(id)).state, (await ownInfo(id)).expires_at_unix], ["running", undefined]);
  await assert.rejects(sandbox.kill(), /workspace "kept"/);
  await assert.rejects(sandbox.setTimeout(1000), /workspace "kept"/);
  const headers = { authorization: `Bearer ${daemon.token}` };
  assert.equal((await ask("/v1/workspaces/kept", { method: "DELETE", headers })).status, 204);
});

test("servers in a sandbox are reached by their host name, or with the token of the traffic", async () => {
  const serve = (id: string) =>
    own("POST", `/v1/sandboxes/${id}/exec`, {
      args: ["python3", "-m", "http.server", "8000", "-d", "/etc"],
      background: true,
    });
  const open = await Sandbox.create(options);
  const closed = await Sandbox.create({ ...options, network: { allowPublicTraffic: false } });
  const get = (host: string, headers: Record<string, string> = {}) =>
    ask("/hostname", { headers: { host, ...headers } });
  const refused = await get(open.getHost(8000));
  assert.equal(refused.status, 502);
  assert.match(refused.text, /The sandbox is running but port is not open/);
  await serve(open.sandboxId);
  await serve(closed.sandboxId);
  await until("the servers listen", async () => (await get(open.getHost(8000))).status === 200);
  const token = closed.trafficAccessToken ?? assert.fail("no token");
  await until("the other server listens", async () => {
    const { status } = await get(closed.getHost(8000), { "e2b-traffic-access-token": token });
    return status === 200;
  });
  assert.equal((await get(closed.getHost(8000))).status, 403);
  assert.equal((await ask("/health", { headers: { host: open.getHost(49_983) } })).status, 204);
  const byHeader = { "e2b-sandbox-id": open.sandboxId, "e2b-sandbox-port": "8000" };
  assert.equal((await ask("/hostname", { headers: byHeader })).status, 200);
  for (const page of [{ host: "rebound.example" }, { origin: "http://page.example" }])
    assert.equal((await ask("/hostname", { headers: { ...byHeader, ...page } })).status, 403);
  await Promise.all([open.kill(), closed.kill()]);
});

test("Template.build() runs its steps in a sandbox of the base, and a name leads to the newest build", async () => {
  const context = await mkdtemp(join(tmpdir(), "forkd-e2b-"));
  try {
    await writeFile(join(context, "hello.txt"), "from the client\n");
    const logs: string[] = [];
    const template = Template({ fileContextPath: context })
      .fromTemplate("python")
      .setUser("builder")
      .setWorkdir("/srv/app")
      .setEnvs({ GREETING: "hello", FULL: "$GREETING world" })
      .copy("hello.txt", "copied/renamed.txt", { mode: 0o640 })
      .runCmd("id -un && pwd && cat copied/renamed.txt && echo $FULL >out.txt")
      .setStartCmd("echo started >/tmp/started; sleep 3600", waitForFile("/tmp/started"));
    const built = await Template.build(template, "my-app", {
      ...options,
      onBuildLogs: ({ message }) => void logs.push(message),
    });
    for (const line of ["builder", "/srv/app", "from the client"])
      assert.ok(logs.includes(line), logs.join("\n"));
    assert.equal(await Template.exists("my-app", options), true);
    const sandbox = await Sandbox.create("my-app", options);
    const look = "cat /srv/app/out.txt; stat -c '%U %a' /srv/app/copied/renamed.txt; cat /tmp/started";
    assert.equal(await run(sandbox.sandboxId, look), "hello world\nbuilder 640\nstarted");
    assert.equal(await run(sandbox.sandboxId, "echo $FULL"), "hello world");
    assert.equal((await sandbox.getInfo()).name, "my-app");
    await sandbox.kill();

    const tagged = await Template.assignTags("my-app", ["v1"], options);
    assert.equal(tagged.buildId, built.buildId);
    assert.deepEqual((await Template.getTags("my-app", options)).map(({ tag }) => tag).sort(), [
      "default",
      "v1",
    ]);
    await Template.removeTags("my-app", ["v1"], options);

    const failing = Template().fromTemplate("my-app").runCmd("true").runCmd("echo broken >&2; exit 7");
    await assert.rejects(
      Template.build(failing, "my-app", options),
      (error) => error instanceof BuildError && /failed with exit code 7/.test(error.message),
    );
    const image = Template().fromImage("debian:bookworm");
    await assert.rejects(
      Template.build(image, "from-image", options),
      /fromImage "debian:bookworm" is not supported/,
    );
    await assert.rejects(Template.build(template, "base", options), /"base" is reserved/);
    const gone = await e2b(`/templates/${built.templateId}`, { method: "DELETE" });
    assert.equal(gone.status, 204);
    assert.equal(await Template.exists("my-app", options), false);
    assert.deepEqual(
      (await own<{ tag: string }[]>("GET", "/v1/snapshots")).map(({ tag }) => tag),
      ["python"],
    );
    await access(context);
  } finally {
    await rm(context, { recursive: true, force: true });
  }
});
