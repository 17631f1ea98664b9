/** The MCP server over stdio, with the official client, a real daemon and real sandboxes. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { overStdio, type TestClient } from "../support/mcp/client.ts";

type Sandbox = { id: string; pid?: number; state: string; labels: Record<string, string> };
type List<T> = { result: T[] };
type Output = {
  stdout: string;
  stderr: string;
  exit_code?: number;
  exec_id: number;
  left_out_bytes?: Record<string, number>;
  whole?: Record<string, string>;
  replaced_characters?: number;
};

let daemon: TestDaemon;
let mcp: TestClient;
let id: string;

before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
  mcp = await overStdio(daemon);
  const { data } = await mcp.call<List<Sandbox>>("spawn_sandboxes", { snapshot_tag: "python" });
  id = data.result[0]?.id ?? "";
});
after(async () => {
  await mcp[Symbol.asyncDispose]();
  await daemon[Symbol.asyncDispose]();
});

const exec = (command: string, more: object = {}) =>
  mcp.call<Output>("exec_command", { sandbox_id: id, command, ...more });

test("every tool has a schema for its answer and says what it may change", async () => {
  const { tools } = await mcp.client.listTools();
  const names = tools.map(({ name }) => name);
  // The names of the original's tools.
  for (const name of [
    "list_snapshots",
    "create_snapshot",
    "spawn_sandboxes",
    "branch_sandbox",
    "list_sandboxes",
    "get_sandbox",
    "kill_sandbox",
    "exec_command",
    "eval_code",
    "ping_sandbox",
    "wait_for_text",
  ])
    assert.ok(names.includes(name), name);
  for (const { name, outputSchema, inputSchema, annotations, description } of tools) {
    assert.equal(outputSchema?.["type"], "object", name);
    assert.equal(inputSchema["additionalProperties"], false, name);
    assert.ok((description?.length ?? 0) > 40, name);
    for (const hint of ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] as const)
      assert.equal(typeof annotations?.[hint], "boolean", `${name} ${hint}`);
  }
  const hints = new Map(tools.map(({ name, annotations }) => [name, annotations]));
  assert.equal(hints.get("list_sandboxes")?.readOnlyHint, true);
  assert.equal(hints.get("kill_sandbox")?.destructiveHint, true);
});

test("the original's tools take its arguments and answer in its shapes", async () => {
  const snapshots = await mcp.call<List<{ tag: string }>>("list_snapshots");
  assert.deepEqual(snapshots.data.result.map(({ tag }) => tag).sort(), ["python", "tiny"]);
  assert.equal(snapshots.content.length, 2, "one block of JSON for each entry");
  assert.equal((JSON.parse(snapshots.text) as { tag: string }).tag, snapshots.data.result[0]?.tag);
  const info = await mcp.call<{ status: string; dependents: string[] }>("get_snapshot", { tag: "python" });
  assert.equal(info.data.status, "ready");

  const forked = await mcp.call<List<Sandbox>>("spawn_sandboxes", {
    snapshot_tag: "tiny",
    n: 2,
    per_child_netns: false,
    prewarm: false,
    live_fork: false,
    vary: [{ env: { COLOR: "red" } }, { env: { COLOR: "blue" } }],
    labels: { job: "a" },
  });
  const [one, two] = forked.data.result;
  assert.ok(one && two);
  assert.match(one.labels["mcp"] ?? "", /^stdio-[0-9a-f]{8}$/);
  assert.equal(one.labels["job"], "a");
  const color = await mcp.call<Output>("exec_command", {
    sandbox_id: two.id,
    args: ["sh", "-c", "echo $COLOR; echo oops >&2; exit 3"],
    timeout_secs: 30,
  });
  const { stdout, stderr, exit_code } = JSON.parse(color.text) as Output;
  assert.deepEqual([stdout, stderr, exit_code], ["blue\n", "oops\n", 3]);

  assert.equal((await mcp.call<Sandbox>("get_sandbox", { sandbox_id: one.id })).data.state, "running");
  assert.equal((await mcp.call<{ ok: boolean }>("ping_sandbox", { sandbox_id: one.id })).data.ok, true);
  const all = await mcp.call<List<Sandbox>>("list_sandboxes");
  assert.equal(all.data.result.length, 3);
  const own = await mcp.call<List<Sandbox>>("list_sandboxes", { own: true, tag: "tiny" });
  assert.deepEqual(own.data.result.map((each) => each.id).sort(), [one.id, two.id].sort());

  for (const { id: sandbox_id } of [one, two])
    assert.deepEqual((await mcp.call("kill_sandbox", { sandbox_id })).data, { id: sandbox_id, killed: true });
  assert.equal((await mcp.fail("kill_sandbox", { sandbox_id: one.id })).code, "sandbox_not_found");
});

test("bad arguments are results that name the field, and errors have a code and a remedy", async () => {
  const cases: [name: string, args: object, field: string, message: RegExp][] = [
    ["spawn_sandboxes", { snapshot_tag: "python", n: 0 }, "n", /at least 1/],
    ["spawn_sandboxes", { snapshot_tag: "python", count: 3 }, "count", /no such argument/],
    ["spawn_sandboxes", {}, "snapshot_tag", /required/],
    ["exec_command", { sandbox_id: "x", command: "ls" }, "sandbox_id", /id of a sandbox/],
    ["exec_command", { sandbox_id: id }, "args", /either/],
    ["exec_command", { sandbox_id: id, args: "ls" }, "args", /list/],
    ["spawn_sandboxes", { snapshot_tag: "python", vary: [{ env: { A: 1 } }] }, "vary.0.env.A", /string/],
    ["wait_for_output", { sandbox_id: id, exec_id: 1, pattern: "(" }, "pattern", /regular expression/],
    ["read_file", { sandbox_id: id, path: "etc" }, "path", /absolute/],
    ["create_snapshot", { tag: "x", rootfs: "/none", tap: "tap0" }, "tap", /not supported/],
  ];
  for (const [name, args, field, message] of cases) {
    const error = await mcp.fail(name, { ...args });
    assert.equal(error.code, "invalid_request", JSON.stringify(error));
    assert.equal(error.details["field"], field);
    assert.match(error.message, message);
  }
  const missing = await mcp.fail("spawn_sandboxes", { snapshot_tag: "pyhton" });
  assert.equal(missing.code, "snapshot_not_found");
  assert.match(missing.remedy ?? "", /Did you mean "python"\? .*list_snapshots/);
  const gone = { sandbox_id: "sb-000000000000000000000000" };
  assert.equal((await mcp.fail("get_sandbox", gone)).code, "sandbox_not_found");
  assert.equal((await mcp.fail("read_output", { uri: "forkd://outputs/none" })).code, "not_found");
});

test("long output is shown as head and tail, and the whole can be read", async () => {
  const lines = 200_000;
  const result = await exec(`seq 1 ${lines}`, { max_output_bytes: 1000 });
  const { stdout, left_out_bytes, whole } = result.data;
  const total = Array.from({ length: lines }, (_, i) => String(i + 1).length + 1).reduce((a, b) => a + b);
  assert.match(stdout, /^1\n2\n/);
  assert.match(stdout, /\n199999\n200000\n$/);
  assert.ok(stdout.length < 1200, String(stdout.length));
  const leftOut = left_out_bytes?.["stdout"] ?? 0;
  assert.match(stdout, new RegExp(`\\[${leftOut} of ${total} bytes are left out here\\. Call read_output`));
  const [head = "", tail = ""] = stdout.split(/\[.*\]\n/);
  assert.equal(head.length + tail.length + leftOut, total);
  const uri = whole?.["stdout"] ?? "";
  const link = result.content.find(({ type }) => type === "resource_link");
  assert.equal(link?.type === "resource_link" && link.uri, uri);

  const part = await mcp.call<{ content: string; total: number; next_offset: number }>("read_output", {
    uri,
    offset: head.length,
    limit: 100,
  });
  assert.equal(part.data.total, total);
  assert.equal(part.data.next_offset, head.length + 100);
  const { contents } = await mcp.client.readResource({ uri });
  const [content] = contents;
  const text = content && "text" in content ? content.text : "";
  assert.equal(text.length, total);
  assert.equal(text.slice(head.length, head.length + 100), part.data.content);
  assert.ok(text.endsWith("\n199999\n200000\n"));
});

test("output beyond what is kept loses its middle, and says so", async () => {
  const bytes = 6 * 1024 * 1024;
  const { data } = await exec(`head -c ${bytes} /dev/zero | tr '\\0' x; echo end`, { max_output_bytes: 512 });
  assert.match(data.stdout, /2097156 of them are not kept/);
  assert.match(data.stdout, /xend\n$/);
  const uri = data.whole?.["stdout"] ?? "";
  const rest = await mcp.call<{ offset: number; content: string }>("read_output", {
    uri,
    offset: bytes - 10,
  });
  assert.equal(rest.data.content, "xxxxxxxxxxend\n");
  const inGap = await mcp.call<{ offset: number }>("read_output", { uri, offset: 3_000_000, limit: 1 });
  assert.equal(inGap.data.offset, bytes + 4 - 2 * 1024 * 1024);
});

test("hostile output becomes safe text", async () => {
  const hostile = String.raw`printf 'a\033[31mred\033[0m\033]0;title\007b\0c\377d\342\200\256e\342\200\250f\r\ng'`;
  const { data } = await exec(hostile);
  assert.equal(data.stdout, "aredb␀c�d\\u{202e}e\\u{2028}f\ng");
  assert.equal(data.replaced_characters, 7);
});

test("wait_for_output follows a background command", async () => {
  const started = await exec("echo one; sleep 1; echo ready on port 80; read line; echo got; exit 7", {
    background: true,
  });
  const { exec_id } = started.data;
  assert.equal(started.data.exit_code, undefined);
  const wait = (more: object) =>
    mcp.call<{
      found: boolean;
      match?: string;
      exited: boolean;
      timed_out: boolean;
      exit_code?: number;
      stdout_offset: number;
      last_excerpt: string;
    }>("wait_for_output", { sandbox_id: id, exec_id, ...more });
  const ready = await wait({ pattern: "ready on port (\\d+)" });
  assert.equal(ready.data.match, "ready on port 80");
  assert.equal(ready.data.exited, false);
  const again = await wait({ text: "ready", stdout_offset: ready.data.stdout_offset, timeout_secs: 60 });
  // Its stdin is empty, so read ends and the command exits without the text.
  assert.deepEqual([again.data.found, again.data.exited, again.data.exit_code], [false, true, 7]);

  const sleeper = (await exec("echo begin; exec sleep 1000", { background: true })).data.exec_id;
  const late = await mcp.call<{ timed_out: boolean; found: boolean }>("wait_for_output", {
    sandbox_id: id,
    exec_id: sleeper,
    text: "never",
    timeout_secs: 0.3,
  });
  assert.deepEqual([late.data.timed_out, late.data.found], [true, false]);
  const listed = await mcp.call<List<{ exec_id: number; state: string }>>("list_commands", {
    sandbox_id: id,
  });
  assert.equal(listed.data.result.find((each) => each.exec_id === sleeper)?.state, "running");
  await mcp.call("signal_command", { sandbox_id: id, exec_id: sleeper, signal: "SIGKILL" });
  const ended = await mcp.call<{ exit_code: number }>("wait_for_output", {
    sandbox_id: id,
    exec_id: sleeper,
  });
  assert.equal(ended.data.exit_code, 137);
  assert.equal(
    (await mcp.fail("wait_for_output", { sandbox_id: id, exec_id: 999_999 })).code,
    "exec_not_found",
  );
});

test("a pattern that takes exponential time is stopped", async () => {
  const { exec_id } = (await exec("echo $(printf 'a%.0s' $(seq 40))b", { background: true })).data;
  const error = await mcp.fail("wait_for_output", { sandbox_id: id, exec_id, pattern: "(a+)+$" });
  assert.equal(error.details["field"], "pattern");
});

test("eval_code keeps variables and reports errors as results", async () => {
  const run = (code: string) =>
    mcp.call<Record<"result" | "error" | "stdout" | "traceback", string | null> & { exit_code: number }>(
      "eval_code",
      { sandbox_id: id, code },
    );
  await run("x = 20");
  const value = (await run("print('hi'); x * 2 + 2")).data;
  assert.deepEqual([value.result, value.error, value.exit_code, value.stdout], ["42", null, 0, "hi\n"]);
  const failed = (await run("1/0")).data;
  assert.match(failed.error ?? "", /ZeroDivisionError/);
  assert.equal(failed.exit_code, 1);
});

test("eval_code shows images and other forms of results", async () => {
  const png = Buffer.from("89504e470d0a1a0a", "hex").toString("base64");
  const code = [
    "import base64",
    "class Picture:",
    `    def _repr_png_(self): return base64.b64decode("${png}")`,
    "    def _repr_markdown_(self): return '**bold**\\u202e'",
    "    def __repr__(self): return 'a picture'",
    "Picture()",
  ].join("\n");
  const result = await mcp.call<{ result: string; results: Record<string, unknown>[] }>("eval_code", {
    sandbox_id: id,
    code,
  });
  const image = result.content.find(({ type }) => type === "image");
  assert.deepEqual(image, { type: "image", data: png, mimeType: "image/png" });
  assert.equal(result.data.result, "a picture");
  assert.deepEqual(result.data.results, [
    { is_main_result: true, text: "a picture", markdown: "**bold**\\u{202e}", image: 1 },
  ]);
});

test("files are written, read in parts, listed and waited for", async () => {
  const path = "/srv/mcp/deep/a.txt";
  await mcp.call("write_file", { sandbox_id: id, path, content: "hello\nworld\n" });
  await mcp.call("write_file", { sandbox_id: id, path, content: "more\n", append: true });
  const read = await mcp.call<{
    content: string;
    size: number;
    next_offset?: number;
    left_out_bytes?: number;
  }>("read_file", { sandbox_id: id, path, offset: 6, limit: 5 });
  assert.deepEqual(
    [read.data.content, read.data.size, read.data.next_offset, read.data.left_out_bytes],
    ["world", 17, 11, 12],
  );
  await mcp.call("write_file", { sandbox_id: id, path: "/srv/mcp/b.bin", content_base64: "/wAB" });
  const bytes = await mcp.call<{ content: string }>("read_file", {
    sandbox_id: id,
    path: "/srv/mcp/b.bin",
    encoding: "base64",
  });
  assert.equal(bytes.data.content, "/wAB");
  const listed = await mcp.call<List<{ path: string }> & { truncated: boolean }>("list_files", {
    sandbox_id: id,
    path: "/srv/mcp",
    depth: 3,
  });
  assert.deepEqual(listed.data.result.map((each) => each.path).sort(), [
    "/srv/mcp/b.bin",
    "/srv/mcp/deep",
    "/srv/mcp/deep/a.txt",
  ]);
  assert.equal((await mcp.fail("read_file", { sandbox_id: id, path: "/none" })).code, "file_not_found");

  const waiting = mcp.call<{ found: boolean; last_excerpt: string }>("wait_for_text", {
    sandbox_id: id,
    path: "/tmp/quote's and $(reboot).log",
    marker: "READY",
    timeout_secs: 60,
    poll_interval_ms: 50,
  });
  await mcp.call("write_file", {
    sandbox_id: id,
    path: "/tmp/quote's and $(reboot).log",
    content: "x READY y",
  });
  assert.deepEqual([(await waiting).data.found, (await waiting).data.last_excerpt], [true, "x READY y"]);
});

test("children of a branch differ where they wrote, and rewind, pause and resume keep the id", async () => {
  await mcp.call("write_file", { sandbox_id: id, path: "/srv/tree/same.txt", content: "one\ntwo\nthree\n" });
  const branch = await mcp.call<{ tag: string; children: Sandbox[]; pause_ms: number }>("branch_sandbox", {
    sandbox_id: id,
    tag: "point",
    diff: false,
    measure_diff: false,
    wait: true,
    n: 2,
    vary: [{ values: { way: "a" } }, { values: { way: "b" } }],
  });
  const [a, b] = branch.data.children;
  assert.ok(a && b);
  assert.match(b.labels["mcp"] ?? "", /^stdio-/);
  const values = await mcp.call<{ content: string }>("read_file", {
    sandbox_id: b.id,
    path: "/run/forkd/values.json",
  });
  assert.deepEqual(JSON.parse(values.data.content), { way: "b" });
  // The same length at the same time: only the content differs.
  await Promise.all([
    mcp.call("write_file", { sandbox_id: a.id, path: "/srv/tree/same.txt", content: "one\nTWO\nthree\n" }),
    mcp.call("write_file", { sandbox_id: b.id, path: "/srv/tree/same.txt", content: "one\n222\nthree\n" }),
    mcp.call("write_file", { sandbox_id: b.id, path: "/srv/tree/new.bin", content_base64: "AP8=" }),
  ]);
  const diff = await mcp.call<{ result: { path: string; change: string }[]; diff: string; total: number }>(
    "diff_files",
    { sandbox_a: a.id, sandbox_b: b.id, paths: ["/srv", "/etc"] },
  );
  const changes = diff.data.result.filter(({ path }) => path.startsWith("/srv"));
  assert.deepEqual(
    changes.map(({ path, change }) => [path, change]),
    [
      ["/srv/tree/new.bin", "added"],
      ["/srv/tree/same.txt", "changed"],
    ],
  );
  assert.ok(
    diff.data.diff.includes(
      "--- a/srv/tree/same.txt\n+++ b/srv/tree/same.txt\n@@ -1,3 +1,3 @@\n one\n-TWO\n+222\n three\n",
    ),
    diff.data.diff,
  );
  assert.match(diff.data.diff, /new\.bin: added; binary/);

  await mcp.call("write_file", { sandbox_id: id, path: "/srv/tree/later.txt", content: "lost" });
  const back = await mcp.call<Sandbox>("rewind_sandbox", { sandbox_id: id, tag: "point" });
  assert.equal(back.data.id, id);
  const lost = await mcp.fail("read_file", { sandbox_id: id, path: "/srv/tree/later.txt" });
  assert.equal(lost.code, "file_not_found");

  assert.equal((await mcp.call<Sandbox>("pause_sandbox", { sandbox_id: a.id })).data.state, "paused");
  const paused = await mcp.fail("exec_command", { sandbox_id: a.id, command: "true" });
  assert.equal(paused.code, "sandbox_paused");
  assert.match(paused.remedy ?? "", /resume_sandbox/);
  assert.equal((await mcp.call<Sandbox>("resume_sandbox", { sandbox_id: a.id })).data.state, "running");

  process.kill((await mcp.call<Sandbox>("get_sandbox", { sandbox_id: b.id })).data.pid ?? 0, "SIGKILL");
  await until("the sandbox is dead", async () => {
    const { data } = await mcp.call<Sandbox>("get_sandbox", { sandbox_id: b.id });
    return data.state === "dead";
  });
  const dead = await mcp.fail("exec_command", { sandbox_id: b.id, command: "true" });
  assert.equal(dead.code, "sandbox_dead");
  assert.match(dead.remedy ?? "", /rewind_sandbox|spawn_sandboxes/);
  for (const each of [a, b]) await mcp.call("kill_sandbox", { sandbox_id: each.id });
});

test("create_snapshot builds with progress, and delete_snapshot removes it", async () => {
  const messages: string[] = [];
  const rootfs = join(daemon.dataDir, "snapshots/tiny/rootfs.ext4");
  const built = await mcp.call<{ tag: string; status: string }>(
    "create_snapshot",
    { tag: "built", rootfs, memory_mib: 96, boot_wait_secs: 300 },
    { onprogress: ({ message }) => messages.push(message ?? "") },
  );
  assert.deepEqual([built.data.tag, built.data.status], ["built", "ready"]);
  assert.ok(messages.length > 0, "a build takes longer than a second");
  const removed = await mcp.call<{ removed: { tag: string }[] }>("delete_snapshot", { tag: "built" });
  assert.deepEqual(removed.data.removed, [{ tag: "built" }]);
});

test("a long call reports progress, and cancelling it kills the command", async () => {
  const seen: { progress: number; message?: string }[] = [];
  await mcp.call(
    "exec_command",
    { sandbox_id: id, command: "echo working; sleep 2.5" },
    {
      onprogress: (progress) => seen.push(progress as never),
    },
  );
  assert.ok(seen.length >= 2, JSON.stringify(seen));
  assert.ok((seen[1]?.progress ?? 0) > (seen[0]?.progress ?? 0));
  assert.match(seen[0]?.message ?? "", /working/);

  const abort = new AbortController();
  const command = "echo started > /tmp/started; exec sleep 777";
  const cancelled = assert.rejects(
    mcp.call("exec_command", { sandbox_id: id, command, timeout_secs: 0 }, { signal: abort.signal }),
  );
  await mcp.call("wait_for_text", { sandbox_id: id, path: "/tmp/started", marker: "started" });
  abort.abort("enough");
  await cancelled;
  await until("the command is gone", async () => {
    const { data } = await exec("ps ax | grep -c '[s]leep 777' || true");
    return data.stdout.trim() === "0";
  });
});

test("cancelling a fork leaves no sandbox behind", async () => {
  const baseline = (await daemon.forkd.call("listSandboxes", {})).length;
  const abort = new AbortController();
  const created = (async () => {
    for await (const event of daemon.forkd.events({ signal: abort.signal }))
      if (event.type === "sandbox.created") return;
  })();
  const forking = mcp.call("spawn_sandboxes", { snapshot_tag: "tiny", n: 12 }, { signal: abort.signal });
  await Promise.race([created, forking]);
  abort.abort("enough");
  await Promise.allSettled([created, forking]);
  await assert.rejects(forking, "the first child is there before the last");
  await until("all children are gone", async () => {
    const all = await daemon.forkd.call("listSandboxes", {});
    return all.length === baseline;
  });
});

test("resources: snapshots, lineage, sandboxes, files and consoles", async () => {
  const { resources } = await mcp.client.listResources();
  const uris = resources.map(({ uri }) => uri);
  for (const uri of [
    "forkd://snapshots",
    "forkd://lineage",
    "forkd://sandboxes",
    `forkd://sandboxes/${id}/console`,
  ])
    assert.ok(uris.includes(uri), uri);
  const { resourceTemplates } = await mcp.client.listResourceTemplates();
  assert.ok(
    resourceTemplates.some(({ uriTemplate }) => uriTemplate === "forkd://sandboxes/{id}/files{+path}"),
  );
  const text = async (uri: string) => {
    const { contents } = await mcp.client.readResource({ uri });
    return contents.map((content) => ("text" in content ? content.text : `base64 ${content.blob}`));
  };
  const [drawn = "", tree = ""] = await text("forkd://lineage");
  assert.match(drawn, new RegExp(`snapshot python\n( {2}.*\n)* {2}snapshot point .branch of ${id}.\n`));
  assert.ok((JSON.parse(tree) as { sandboxes: Sandbox[] }).sandboxes.some((each) => each.id === id));
  assert.equal((JSON.parse((await text(`forkd://sandboxes/${id}`))[0] ?? "") as Sandbox).id, id);
  assert.equal((JSON.parse((await text("forkd://snapshots/tiny"))[0] ?? "") as { tag: string }).tag, "tiny");
  await exec("printf '\\033[1mto the console\\n' > /dev/console");
  await until("the console has the line", async () =>
    /^to the console$/m.test((await text(`forkd://sandboxes/${id}/console`))[0] ?? ""),
  );

  const path = "/srv/a b/ü%2f.txt";
  await mcp.call("write_file", { sandbox_id: id, path, content: "grüße" });
  const uri = `forkd://sandboxes/${id}/files${path.split("/").map(encodeURIComponent).join("/")}`;
  assert.deepEqual(await text(uri), ["grüße"]);
  await mcp.call("write_file", { sandbox_id: id, path: "/srv/raw", content_base64: "/w==" });
  assert.deepEqual(await text(`forkd://sandboxes/${id}/files/srv/raw`), ["base64 /w=="]);
  const [entries = ""] = await text(`forkd://sandboxes/${id}/files/srv`);
  assert.ok((JSON.parse(entries) as { name: string }[]).some(({ name }) => name === "a b"));
  await assert.rejects(text(`forkd://sandboxes/${id}/files/none`), /none/);
  await assert.rejects(text("forkd://outputs/000000000000000000000000"), /There is no output/);
});

test("prompts explain how to explore variants and how to debug by rewind", async () => {
  const { prompts } = await mcp.client.listPrompts();
  assert.deepEqual(prompts.map(({ name }) => name).sort(), ["debug_by_rewind", "explore_variants"]);
  const { messages } = await mcp.client.getPrompt({
    name: "explore_variants",
    arguments: { task: "make it fast", k: "4", snapshot: "python" },
  });
  const [message] = messages;
  const said = message?.content.type === "text" ? message.content.text : "";
  assert.match(said, /make it fast/);
  assert.match(said, /branch_sandbox on the base with n 4/);
  await assert.rejects(
    mcp.client.getPrompt({ name: "explore_variants", arguments: { task: "x", k: "99" } }),
    /"k".*2 to 16/,
  );
});

test("--kill-on-exit kills what the server created, --ttl limits its life, and others stay", async () => {
  const other = await overStdio(daemon, ["--kill-on-exit", "--ttl", "1h"]);
  const { data } = await other.call<List<Sandbox & { expires_at_unix?: number }>>("spawn_sandboxes", {
    snapshot_tag: "tiny",
  });
  const [created] = data.result;
  assert.ok(created?.expires_at_unix);
  await other[Symbol.asyncDispose]();
  await until("the sandbox is gone", async () => {
    const all = await daemon.forkd.call("listSandboxes", {});
    return all.length === 1 && all[0]?.id === id;
  });
});
