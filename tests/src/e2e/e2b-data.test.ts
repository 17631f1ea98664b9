/** E2B's official client against a daemon and its VMs: commands, terminals and files. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import {
  AuthenticationError,
  CommandExitError,
  FileNotFoundError,
  FilesystemEventType,
  InvalidArgumentError,
  NotEnoughSpaceError,
  NotFoundError,
  Sandbox,
  SandboxError,
  TimeoutError,
  type FilesystemEvent,
} from "e2b";
import { startE2bDaemon, type E2bDaemon } from "../support/e2b.ts";

let daemon: E2bDaemon;
let sandbox: Sandbox;
before(async () => {
  // Many login shells at the same time keep an emulated guest from answering for longer than the default.
  daemon = await startE2bDaemon({ FORKD_GUEST_TIMEOUT_SECS: "300" });
  sandbox = await Sandbox.create("python", daemon.options);
});
after(() => daemon[Symbol.asyncDispose]());

/** The exit of a command that fails. */
async function exitOf(work: Promise<unknown>): Promise<CommandExitError> {
  const error = await work.then(
    () => assert.fail("expected a CommandExitError"),
    (reason: unknown) => reason,
  );
  assert.ok(error instanceof CommandExitError, String(error));
  return error;
}

test("run() gives output, variables, directory and exit", async () => {
  const result = await sandbox.commands.run('echo "$A $E2B_SANDBOX $E2B_TEMPLATE_ID"; pwd; echo err >&2', {
    envs: { A: "b c" },
    cwd: "/etc",
  });
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["b c true python\n/etc\n", "err\n", 0]);
  const failed = await exitOf(sandbox.commands.run("echo x; exit 3"));
  assert.deepEqual([failed.exitCode, failed.error, failed.stdout], [3, "exit status 3", "x\n"]);
  const killed = await exitOf(sandbox.commands.run("kill -9 $$"));
  assert.deepEqual([killed.exitCode, killed.error], [-1, "signal: killed"]);
});

test("run() refuses users and directories that do not exist", async () => {
  await assert.rejects(sandbox.commands.run("true", { user: "nobody-here" }), (error: unknown) => {
    assert.ok(error instanceof AuthenticationError);
    assert.match(error.message, /invalid username: 'nobody-here'/);
    return true;
  });
  await assert.rejects(sandbox.commands.run("true", { cwd: "/nowhere" }), InvalidArgumentError);
  const { stdout } = await sandbox.commands.run("id -un; id -u", { user: "nobody" });
  assert.equal(stdout, "nobody\n65534\n");
});

test("output keeps bytes that are not UTF-8, and characters that look like ends of lines", async () => {
  const { stdout } = await sandbox.commands.run(
    String.raw`printf '\xff\xe2\x80\xa8\xc3'; sleep 0.2; printf '\xbc\n'`,
  );
  assert.equal(stdout, "\ufffd\u2028ü\n");
});

test("a command takes input until its stdin is closed", async () => {
  const command = await sandbox.commands.run("while read line; do echo got $line; done; echo end", {
    background: true,
    stdin: true,
  });
  await command.sendStdin("one\n");
  await sandbox.commands.sendStdin(command.pid, "two ü\n");
  await until("input was read", () => command.stdout.includes("two"));
  await sandbox.commands.closeStdin(command.pid);
  assert.equal((await command.wait()).stdout, "got one\ngot two ü\nend\n");
  await assert.rejects(sandbox.commands.sendStdin(command.pid, "late"), NotFoundError);
});

test("sendStdin() to a command without stdin is refused", async () => {
  const command = await sandbox.commands.run("sleep 60", { background: true });
  await assert.rejects(sandbox.commands.sendStdin(command.pid, "x"), SandboxError);
  assert.equal(await command.kill(), true);
  await exitOf(command.wait());
  assert.equal(await sandbox.commands.kill(command.pid), false);
});

test("a timeout ends the call and kills the command", async () => {
  const command = await sandbox.commands.run("echo begun; sleep 1000", { background: true, timeoutMs: 2000 });
  await assert.rejects(command.wait(), TimeoutError);
  await until("the command is killed", async () => {
    const all = await sandbox.commands.list();
    return all.every(({ pid }) => pid !== command.pid);
  });
});

test("a command outlives its client, several can follow it, and its end waits for a late one", async () => {
  const script = "read go; for i in $(seq 20); do echo line $i; done; read stop; echo bye; exit 4";
  const first = await sandbox.commands.run(script, { background: true, stdin: true });
  await first.disconnect();
  const listed = await sandbox.commands.list();
  assert.deepEqual(listed.find(({ pid }) => pid === first.pid)?.args, ["-l", "-c", script]);
  const second = await sandbox.commands.connect(first.pid);
  const third = await sandbox.commands.connect(first.pid);
  await sandbox.commands.sendStdin(first.pid, "go\n");
  const expected = Array.from({ length: 20 }, (_, at) => `line ${at + 1}\n`).join("");
  for (const follower of [second, third])
    await until("every line has come", () => follower.stdout === expected);
  await sandbox.commands.sendStdin(first.pid, "stop\n");
  for (const follower of [second, third]) {
    const exit = await exitOf(follower.wait());
    assert.deepEqual([exit.exitCode, exit.stdout], [4, `${expected}bye\n`]);
  }
  const late = await sandbox.commands.connect(first.pid);
  assert.equal((await exitOf(late.wait())).exitCode, 4);
  await assert.rejects(sandbox.commands.connect(999_999), NotFoundError);
});

test("24 commands stream 1,000 lines each at the same time: in order, nothing lost", async () => {
  const runs = Array.from({ length: 24 }, async (_, at) => {
    let streamed = "";
    const { stdout } = await sandbox.commands.run(`seq -f "${at}:%g" 1000`, {
      timeoutMs: 0,
      requestTimeoutMs: 0,
      onStdout: (text) => {
        streamed += text;
      },
    });
    assert.equal(stdout, Array.from({ length: 1000 }, (_none, line) => `${at}:${line + 1}\n`).join(""));
    assert.equal(streamed, stdout);
  });
  await Promise.all(runs);
});

test("a terminal has a size, takes input and ends", async () => {
  let shown = "";
  const terminal = await sandbox.pty.create({
    cols: 80,
    rows: 24,
    timeoutMs: 0,
    onData: (bytes) => {
      shown += Buffer.from(bytes).toString();
    },
  });
  await sandbox.pty.resize(terminal.pid, { cols: 100, rows: 30 });
  await sandbox.pty.sendInput(terminal.pid, Buffer.from("stty size; echo $TERM\n"));
  await until("the terminal answers", () => shown.includes("30 100\r\nxterm-256color"));
  let followed = "";
  const follower = await sandbox.pty.connect(terminal.pid, {
    onData: (bytes) => {
      followed += Buffer.from(bytes).toString();
    },
  });
  await sandbox.pty.sendInput(terminal.pid, Buffer.from("exit 5\n"));
  for (const each of [terminal, follower]) assert.equal((await exitOf(each.wait())).exitCode, 5);
  assert.match(followed, /exit 5/);
  const other = await sandbox.pty.create({ cols: 80, rows: 24, onData: () => undefined });
  assert.equal(await sandbox.pty.kill(other.pid), true);
  assert.equal((await exitOf(other.wait())).error, "signal: killed");
});

test("files are written and read as text, bytes, streams, empty and compressed", async () => {
  const text = "hello ü\u2028\n";
  const written = await sandbox.files.write("notes/a.txt", text);
  assert.deepEqual([written.name, written.path, written.type], ["a.txt", "/root/notes/a.txt", "file"]);
  assert.equal(await sandbox.files.read("~/notes/a.txt"), text);
  assert.equal(await sandbox.files.read("notes/a.txt", { gzip: true }), text);
  const bytes = Buffer.alloc(3_000_000, "0123456789");
  await sandbox.files.write("/tmp/big", new Blob([bytes]));
  assert.ok(bytes.equals(await sandbox.files.read("/tmp/big", { format: "bytes" })));
  await sandbox.files.write("/tmp/zipped", bytes.toString(), { gzip: true });
  const stream = await sandbox.files.read("/tmp/zipped", { format: "stream" });
  await sandbox.files.write("/tmp/copied", stream);
  const { stdout } = await sandbox.commands.run(
    "cd /tmp; cat big zipped copied | sha256sum; stat -c %s copied",
  );
  const sum = createHash("sha256").update(bytes).update(bytes).update(bytes).digest("hex");
  assert.equal(stdout, `${sum}  -\n3000000\n`);
  await sandbox.files.write("/tmp/empty", "");
  assert.equal(await sandbox.files.read("/tmp/empty"), "");
  const several = await sandbox.files.write([
    { path: "/tmp/x/1", data: "one" },
    { path: "/tmp/x/2", data: "two" },
  ]);
  assert.deepEqual(
    several.map(({ path }) => path),
    ["/tmp/x/1", "/tmp/x/2"],
  );
});

test("a file belongs to its user, also where only root may write", async () => {
  await sandbox.files.write("/srv/deep/file", "x", { user: "nobody" });
  const { owner, group, permissions, mode, type } = await sandbox.files.getInfo("/srv/deep/file");
  assert.deepEqual(
    [owner, group, permissions, mode, type],
    ["nobody", "nogroup", "-rw-r--r--", 0o644, "file"],
  );
  assert.equal((await sandbox.files.getInfo("/srv/deep")).owner, "nobody");
  assert.equal(await sandbox.files.read("/srv/deep/file", { user: "nobody" }), "x");
  await assert.rejects(sandbox.files.read("/srv/deep/file", { user: "nobody-here" }), AuthenticationError);
});

test("directories are made, listed, moved and removed", async () => {
  assert.equal(await sandbox.files.makeDir("tree/a/b"), true);
  assert.equal(await sandbox.files.makeDir("tree/a/b"), false);
  await sandbox.files.write("tree/a/file", "x");
  await sandbox.commands.run("ln -s ../tree/a/file tree/link; ln -s nowhere tree/broken; mkfifo tree/fifo");
  const names = async (depth: number) =>
    (await sandbox.files.list("tree", { depth })).map(({ path }) => path.replace("/root/tree/", ""));
  assert.deepEqual(await names(1), ["a", "broken", "link"]);
  assert.deepEqual(await names(3), ["a", "a/b", "a/file", "broken", "link"]);
  const link = await sandbox.files.getInfo("tree/link");
  assert.deepEqual([link.type, link.symlinkTarget, link.permissions[0]], ["file", "/root/tree/a/file", "L"]);
  const moved = await sandbox.files.rename("tree/a/file", "other/place/file");
  assert.equal(moved.path, "/root/other/place/file");
  assert.deepEqual(
    [await sandbox.files.exists("tree/a/file"), await sandbox.files.exists("other")],
    [false, true],
  );
  await sandbox.files.remove("tree");
  await sandbox.files.remove("tree");
  assert.equal(await sandbox.files.exists("tree"), false);
});

test("wrong paths are refused with the error of their kind", async () => {
  await sandbox.files.write("plain", "x");
  await assert.rejects(sandbox.files.read("missing"), FileNotFoundError);
  await assert.rejects(sandbox.files.list("missing"), FileNotFoundError);
  await assert.rejects(sandbox.files.getInfo("missing"), FileNotFoundError);
  await assert.rejects(sandbox.files.rename("missing", "x"), FileNotFoundError);
  await assert.rejects(sandbox.files.read("/etc"), InvalidArgumentError);
  await assert.rejects(sandbox.files.list("plain"), InvalidArgumentError);
  await assert.rejects(sandbox.files.makeDir("plain"), InvalidArgumentError);
  await assert.rejects(
    sandbox.files.watchDir("missing", () => undefined),
    FileNotFoundError,
  );
});

test("names that are not UTF-8 or look like ends of lines do not break a listing", async () => {
  await sandbox.commands.run(String.raw`mkdir odd; touch odd/$'\xff' odd/$'a\nb' odd/$'\xe2\x80\xa8'`);
  const names = (await sandbox.files.list("odd")).map(({ name }) => name);
  assert.deepEqual(names.toSorted(), ["a\nb", "\u2028", "\ufffd"]);
});

test("watchDir() reports changes, in new directories too if it is recursive", async () => {
  await sandbox.files.makeDir("watched");
  const events: FilesystemEvent[] = [];
  const watch = await sandbox.files.watchDir("watched", (event) => void events.push(event), {
    recursive: true,
    includeEntry: true,
  });
  const seen = (type: FilesystemEventType, name: string) =>
    until(`${type} of ${name}`, () => events.some((each) => each.type === type && each.name === name));
  await sandbox.files.write("watched/file", "one");
  await seen(FilesystemEventType.CREATE, "file");
  await seen(FilesystemEventType.WRITE, "file");
  const entry = events.find(({ type }) => type === FilesystemEventType.CREATE)?.entry;
  assert.deepEqual([entry?.name, entry?.type], ["file", "file"]);
  await sandbox.commands.run("mkdir watched/sub; chmod 600 watched/file; mv watched/file watched/moved");
  await seen(FilesystemEventType.CHMOD, "file");
  await seen(FilesystemEventType.RENAME, "file");
  await sandbox.files.write("watched/sub/deep", "two");
  await seen(FilesystemEventType.CREATE, "sub/deep");
  await sandbox.files.remove("watched/moved");
  await seen(FilesystemEventType.REMOVE, "moved");
  await watch.stop();
});

/** A call without the SDK. */
async function rpc(
  method: string,
  message: object,
  token?: string,
): Promise<{ status: number; body: unknown }> {
  const answer = await fetch(`${daemon.url}/${method}`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      "e2b-sandbox-id": sandbox.sandboxId,
      "e2b-sandbox-port": "49983",
      ...(token !== undefined && { "x-access-token": token }),
    },
    body: JSON.stringify(message),
  });
  return { status: answer.status, body: await answer.json() };
}

const tokenOf = (of: Sandbox) => (of as unknown as { envdAccessToken: string }).envdAccessToken;

test("a watcher has every event as soon as the change is made", async () => {
  const token = tokenOf(sandbox);
  await sandbox.files.makeDir("polled");
  const made = await rpc("filesystem.Filesystem/CreateWatcher", { path: "polled" }, token);
  const { watcherId } = made.body as { watcherId: string };
  await sandbox.files.write("polled/file", "x");
  const polled = await rpc("filesystem.Filesystem/GetWatcherEvents", { watcherId }, token);
  const { events } = polled.body as { events: { name: string; type: string }[] };
  assert.deepEqual(
    events.map(({ type }) => type),
    ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"],
  );
  assert.deepEqual((await rpc("filesystem.Filesystem/GetWatcherEvents", { watcherId }, token)).body, {
    events: [],
  });
  assert.equal((await rpc("filesystem.Filesystem/RemoveWatcher", { watcherId }, token)).status, 200);
  assert.deepEqual(await rpc("filesystem.Filesystem/GetWatcherEvents", { watcherId }, token), {
    status: 404,
    body: { code: "not_found", message: `watcher with id ${watcherId} not found` },
  });
});

test("a sandbox has 64 watchers, also if more are asked for at the same time", async () => {
  const token = tokenOf(sandbox);
  await sandbox.files.makeDir("crowded");
  const make = () => rpc("filesystem.Filesystem/CreateWatcher", { path: "crowded" }, token);
  const made = await Promise.all(Array.from({ length: 70 }, make));
  assert.deepEqual(
    [200, 429].map((status) => made.filter((each) => each.status === status).length),
    [64, 6],
  );
  for (const { status, body } of made)
    if (status === 200) await rpc("filesystem.Filesystem/RemoveWatcher", body as object, token);
  const after = await make();
  assert.equal(after.status, 200);
  await rpc("filesystem.Filesystem/RemoveWatcher", after.body as object, token);
});

test("only /health answers without the token", async () => {
  const headers = { "e2b-sandbox-id": sandbox.sandboxId, "e2b-sandbox-port": "49983" };
  const health = await fetch(`${daemon.url}/health`, { headers });
  assert.deepEqual([health.status, await health.text()], [204, ""]);
  for (const token of [undefined, "wrong"]) {
    assert.equal((await rpc("process.Process/List", {}, token)).status, 401);
    const answer = await fetch(`${daemon.url}/files?path=/etc/passwd`, {
      headers: { ...headers, ...(token && { "x-access-token": token }) },
    });
    assert.equal(answer.status, 401);
    assert.equal(((await answer.json()) as { code: number }).code, 401);
  }
  const gone = await fetch(`${daemon.url}/health`, {
    headers: { ...headers, "e2b-sandbox-id": "sb-nothing" },
  });
  assert.equal(gone.status, 502);
  assert.equal(((await gone.json()) as { code: number }).code, 502);
});

test("signed URLs need no other permission, end in time and are for one path and one direction", async () => {
  await sandbox.files.write("signed file", "content");
  const url = await sandbox.downloadUrl("signed file", { useSignatureExpiration: 60 });
  assert.equal(await (await fetch(url)).text(), "content");
  // Whose home the path counts from is part of what was signed.
  const asOther = { authorization: `Basic ${Buffer.from("nobody:").toString("base64")}` };
  assert.equal(await (await fetch(url, { headers: asOther })).text(), "content");
  const form = new FormData();
  form.append("file", new Blob(["uploaded"]), "any");
  const upload = await sandbox.uploadUrl("uploaded");
  assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
  assert.equal(await sandbox.files.read("uploaded"), "uploaded");
  const changed = [
    fetch(url.replace("signed", "other")),
    fetch(url, { method: "POST", body: "x", headers: { "content-type": "application/octet-stream" } }),
    fetch(await sandbox.downloadUrl("signed file", { useSignatureExpiration: -60 })),
  ];
  for (const answer of await Promise.all(changed)) assert.equal(answer.status, 401);
});

test("a full disk is reported as such, and the next write works", async () => {
  await sandbox.commands.run("mkdir /small; mount -t tmpfs -o size=1m none /small", { user: "root" });
  const large = "x".repeat(8 << 20);
  await assert.rejects(sandbox.files.write("/small/file", large), NotEnoughSpaceError);
  await assert.rejects(sandbox.files.write("/small/file", large, { gzip: true }), NotEnoughSpaceError);
  await sandbox.files.write("/small/file", "fits");
  assert.equal(await sandbox.files.read("/small/file"), "fits");
});

test("killing the sandbox ends the calls into it", async () => {
  const other = await Sandbox.create("python", daemon.options);
  const command = await other.commands.run("sleep 1000", { background: true });
  const stopped = assert.rejects(command.wait(), TimeoutError);
  await other.kill();
  await stopped;
  assert.equal(await other.isRunning(), false);
  await assert.rejects(other.commands.run("true"), SandboxError);
  await assert.rejects(other.files.read("/etc/passwd"), TimeoutError);
});
