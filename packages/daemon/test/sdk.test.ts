/** The SDK against the real router over the real sockets; only the operations are the test's. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AppError,
  type ExecEvent,
  type ExecResult,
  type SandboxInfo,
  type SnapshotInfo,
} from "@forkd/contract";
import { CommandError, fetchTransport, ForkError, Forkd, Sandbox } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import { buildEvents } from "../src/build-events.ts";
import type { Handlers } from "../src/router.ts";
import { deferred, sandboxId, startServer, token } from "./support.ts";

const info: SandboxInfo = {
  id: sandboxId,
  snapshot_tag: "py",
  state: "running",
  created_at_unix: 1,
  index: 0,
  hostname: "h",
  labels: {},
  vcpus: 1,
  memory_mib: 128,
  accelerator: "tcg",
  languages: ["python"],
  ready_ms: 5,
  pooled: true,
  branch_count: 0,
};
const snapshot: SnapshotInfo = {
  tag: "py",
  dir: "/d",
  created_at_unix: 1,
  status: "ready",
  bootable: true,
  memory_mib: 128,
  vcpus: 1,
  accelerator: "tcg",
  languages: [],
  physical_bytes: 0,
};
const result: ExecResult = {
  exec_id: 3,
  stdout: "out",
  stderr: "",
  exit_code: 0,
  timed_out: false,
  truncated: false,
  duration_ms: 1,
};

async function withSandbox(
  some: Partial<Handlers>,
): Promise<AsyncDisposable & { sandbox: Sandbox; forkd: Forkd }> {
  const server = await startServer({ getSandbox: () => info, ...some });
  const forkd = await connect({ socket: server.socket });
  const sandbox = await forkd.sandboxes.get(sandboxId);
  return { sandbox, forkd, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

test("fork() gives sandboxes and errors, over the unix socket and over fetch", async () => {
  await using server = await startServer({
    fork: async (input) => {
      assert.deepEqual(
        [input.n, input.env, input.labels, input.vary, input.ttl_secs],
        [2, { A: "1" }, { l: "v" }, [{ values: { seed: 1 } }], 60],
      );
      return [info, { index: 1, error: "no room", code: "capacity_exhausted", details: {} }];
    },
  });
  for (const forkd of [
    await connect({ socket: server.socket }),
    await connect({ url: server.url, token }),
    new Forkd({ transport: fetchTransport({ url: server.url, token }) }),
  ]) {
    const options = {
      n: 2,
      env: { A: "1" },
      labels: { l: "v" },
      vary: [{ values: { seed: 1 } }],
      ttlSecs: 60,
    };
    const [first, second] = await forkd.fork("py", options);
    assert.ok(first instanceof Sandbox);
    assert.deepEqual(first.info, info);
    assert.ok(second instanceof ForkError && second instanceof AppError);
    assert.deepEqual([second.code, second.index, second.message], ["capacity_exhausted", 1, "no room"]);
  }
});

test("forkOne() throws what the child's entry says", async () => {
  await using server = await startServer({
    fork: async () => [{ index: 0, error: "no room", code: "capacity_exhausted", details: {} }],
  });
  const forkd = await connect({ socket: server.socket });
  await assert.rejects(forkd.forkOne("py"), { code: "capacity_exhausted" });
});

test("a wrong token is unauthenticated; errors carry the request id", async () => {
  await using server = await startServer({});
  const forkd = await connect({ url: server.url, token: "wrong-wrong-wrong" });
  await assert.rejects(forkd.status(), (error: AppError) => {
    assert.equal(error.code, "unauthenticated");
    assert.equal(typeof error.details["request_id"], "string");
    return true;
  });
});

test("commands.run() returns the result, and throws with check", async () => {
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.deepEqual([input.args, input.cwd, input.timeout_secs], [["ls", "-l"], "/w", 5]);
      return { ...result, exit_code: 2, stderr: "bad\n" };
    },
  });
  const options = { cwd: "/w", timeoutSecs: 5 };
  assert.equal((await opened.sandbox.commands.run(["ls", "-l"], options)).exit_code, 2);
  await assert.rejects(
    opened.sandbox.commands.run(["ls", "-l"], { ...options, check: true }),
    (error: CommandError) => {
      assert.ok(error instanceof CommandError);
      assert.equal(error.result.exit_code, 2);
      assert.match(error.message, /exit code 2\nbad/);
      return true;
    },
  );
});

function events(...items: ExecEvent[]): AsyncIterable<ExecEvent> {
  return (async function* () {
    yield* items;
  })();
}
const started: ExecEvent = { type: "started", exec_id: 3, pid: 9 };
const exit: ExecEvent = { type: "exit", exit_code: 4, timed_out: false, duration_ms: 1 };
const output: ExecEvent[] = [
  { type: "stdout", offset: 0, data: "a", encoding: "utf8" },
  { type: "stderr", offset: 0, data: "/w==", encoding: "base64" },
  { type: "stdout", offset: 1, data: "YgA=", encoding: "base64" },
];

test("commands.start() gives a handle to wait for, to iterate, or both", async () => {
  await using opened = await withSandbox({ exec: async () => events(started, ...output, exit) });
  const waited = await (await opened.sandbox.commands.start(["x"])).wait();
  const expected = { ...result, stdout: "ab\0", stderr: "\ufffd", exit_code: 4 };
  assert.deepEqual(waited, expected);

  const handle = await opened.sandbox.commands.start(["x"]);
  assert.deepEqual([handle.execId, handle.pid], [3, 9]);
  const seen: ExecEvent[] = [];
  const both = handle[Symbol.asyncIterator]();
  const late = handle.wait();
  for await (const event of both) seen.push(event);
  assert.deepEqual(seen, [started, ...output, exit]);
  assert.deepEqual(await late, expected);
  assert.deepEqual(await handle.wait(), expected);
});

test("a handle's input arrives in order, and signals and sizes reach the daemon", async () => {
  const calls: unknown[] = [];
  const over = deferred();
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.deepEqual([input.stdin_open, input.pty], [true, { rows: 5, cols: 6 }]);
      return (async function* () {
        yield started;
        await over.promise;
        yield exit;
      })();
    },
    execInput: async (input) => {
      calls.push(input.eof ? "eof" : Buffer.from(input.data, "base64").length);
      await new Promise((resolve) => setTimeout(resolve, calls.length === 1 ? 20 : 0));
      return undefined;
    },
    execSignal: (input) => void calls.push(input.signal) as undefined,
    execResize: (input) => void calls.push([input.rows, input.cols]) as undefined,
  });
  const handle = await opened.sandbox.commands.start(["cat"], { stdinOpen: true, pty: { rows: 5, cols: 6 } });
  void handle.write("é");
  void handle.write(new Uint8Array(600_000));
  await handle.closeStdin();
  await handle.resize(7, 8);
  await handle.signal("SIGINT");
  await handle.kill();
  assert.deepEqual(calls, [2, 524_288, 75_712, "eof", [7, 8], "SIGINT", "SIGKILL"]);
  over.resolve();
  assert.equal((await handle.wait()).exit_code, 4);
});

test("a handle that is left or aborted ends the command's request", async () => {
  let returned = deferred();
  await using opened = await withSandbox({
    exec: async (_, { signal }) =>
      (async function* () {
        try {
          yield started;
          await new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(signal.reason as Error)),
          );
        } finally {
          returned.resolve();
        }
      })(),
  });
  const left = await opened.sandbox.commands.start(["x"]);
  for await (const _ of left) break;
  await returned.promise;
  await assert.rejects(left.wait(), { code: "cancelled" });

  returned = deferred();
  const abort = new AbortController();
  const aborted = await opened.sandbox.commands.start(["x"], { signal: abort.signal });
  const waiting = aborted.wait();
  abort.abort();
  await assert.rejects(waiting, { code: "cancelled" });
  await returned.promise;
});

test("a failure in a stream is thrown by the iteration and by wait()", async () => {
  await using opened = await withSandbox({
    exec: async () =>
      (async function* () {
        yield started;
        throw new AppError("sandbox_dead", "It died");
      })(),
    eval: async () =>
      (async function* () {
        yield { type: "stdout", offset: 0, data: "x", encoding: "utf8" } as const;
        throw new AppError("kernel_failed", "It ended");
      })(),
  });
  const handle = await opened.sandbox.commands.start(["x"]);
  await assert.rejects(handle.wait(), { code: "sandbox_dead" });
  await assert.rejects(
    async () => {
      for await (const event of opened.sandbox.evalStream("x")) assert.equal(event.type, "stdout");
    },
    { code: "kernel_failed" },
  );
});

test("background() and attach() use the same command, which may be silent", async () => {
  const attached = deferred();
  await using opened = await withSandbox({
    exec: async (input) => {
      assert.equal(input.background, true);
      return { exec_id: 3, pid: 9 };
    },
    attachExec: async (input) => {
      assert.deepEqual([input.exec_id, input.stdout_offset, input.stderr_offset], [3, 1, 0]);
      return (async function* () {
        await attached.promise;
        yield* events(...output.slice(2), exit);
      })();
    },
  });
  const { exec_id } = await opened.sandbox.commands.background(["sleep", "1"]);
  const handle = await opened.sandbox.commands.attach(exec_id, { stdoutOffset: 1 });
  attached.resolve();
  assert.deepEqual([handle.execId, handle.pid], [3, undefined]);
  assert.equal((await handle.wait()).stdout, "b\0");
});

test("eval() passes its options and gives the result", async () => {
  const value = {
    result: "2",
    result_json: 2,
    stdout: "",
    stderr: "",
    error: null,
    traceback: null,
    exit_code: 0,
    interrupted: false,
    timed_out: false,
    truncated: false,
    language: "python" as const,
    context: "c",
    duration_ms: 1,
  };
  await using opened = await withSandbox({
    eval: async (input) => {
      assert.deepEqual(
        [input.code, input.language, input.context, input.timeout_secs],
        ["1+1", "python", "c", 3],
      );
      return value;
    },
  });
  const options = { language: "python", context: "c", timeoutSecs: 3 } as const;
  assert.deepEqual(await opened.sandbox.eval("1+1", options), value);
});

test("files go both ways byte by byte", async () => {
  const stored = new Map<string, Buffer>();
  const entry = {
    name: "a",
    path: "/a",
    type: "file",
    size: 0,
    mode: "0644",
    mtime_unix: 0,
    uid: 0,
    gid: 0,
  } as const;
  await using opened = await withSandbox({
    writeFile: async (input, { content }) => {
      const chunks: Uint8Array[] = input.append ? [stored.get(input.path) ?? Buffer.alloc(0)] : [];
      for await (const chunk of content) chunks.push(chunk);
      stored.set(input.path, Buffer.concat(chunks));
      return { ...entry, path: input.path };
    },
    readFile: async (input) => {
      const content = stored.get(input.path);
      if (!content) throw new AppError("file_not_found", "No such file");
      return (async function* () {
        yield content.subarray(input.offset, input.limit === 0 ? undefined : input.offset + input.limit);
      })();
    },
  });
  const { files } = opened.sandbox;
  const bytes = Uint8Array.from({ length: 3 << 20 }, (_, n) => (n * 7) % 256);
  await files.write("/b", bytes);
  assert.deepEqual(Buffer.from(await files.read("/b")), Buffer.from(bytes));
  await files.write("/é?&#", "one");
  await files.write("/é?&#", Buffer.from("two"), { append: true });
  assert.equal(await files.readText("/é?&#"), "onetwo");
  assert.equal(await files.readText("/é?&#", { offset: 2, limit: 2 }), "et");
  const many = async function* () {
    for (let n = 0; n < 3; n++) yield Buffer.from([n]);
  };
  await files.write("/c", many());
  assert.deepEqual([...(await files.read("/c"))], [0, 1, 2]);
  await files.write("/empty", "");
  assert.equal((await files.read("/empty")).length, 0);
  await assert.rejects(files.read("/none"), { code: "file_not_found" });
});

test("snapshots.build() reports progress; failures come as errors before and after it", async () => {
  await using opened = await withSandbox({
    createSnapshot: (input) =>
      buildEvents(async (onProgress) => {
        if (input.tag === "taken") throw new AppError("snapshot_exists", "It exists");
        onProgress("boot", "Booting");
        await Promise.resolve();
        if (input.tag === "bad") throw new AppError("engine_failed", "No boot");
        return snapshot;
      }),
  });
  const { snapshots } = opened.forkd;
  const steps: string[] = [];
  const onProgress = (progress: { step: string }) => void steps.push(progress.step);
  assert.deepEqual(await snapshots.build({ tag: "py", recipe: "/r" }, { onProgress }), snapshot);
  assert.deepEqual(steps, ["boot"]);
  await assert.rejects(snapshots.build({ tag: "taken", recipe: "/r" }), { code: "snapshot_exists" });
  await assert.rejects(snapshots.build({ tag: "bad", recipe: "/r" }), { code: "engine_failed" });
  await assert.rejects(snapshots.build({ tag: "none" }), { code: "invalid_request" });
});

test("a sandbox is killed at the end of its block, once", async () => {
  let kills = 0;
  await using opened = await withSandbox({
    kill: async () => {
      if (kills++ > 0) throw new AppError("sandbox_not_found", "Gone");
      return undefined;
    },
    setTtl: (input) => ({ ...info, expires_at_unix: input.ttl_secs ?? 0 }),
    logs: async (input) => {
      assert.deepEqual([input.follow, input.tail], [true, 5]);
      return (async function* () {
        yield Buffer.from("line\n");
      })();
    },
  });
  {
    await using sandbox = await opened.forkd.sandboxes.get(sandboxId);
    await sandbox.setTtl(9);
    assert.equal(sandbox.info.expires_at_unix, 9);
    for await (const chunk of sandbox.logs({ follow: true, tail: 5 })) assert.equal(String(chunk), "line\n");
    await sandbox.kill();
  }
  assert.equal(kills, 2);
});

test("abort of a plain call is cancelled and reaches the handler", async () => {
  const entered = deferred();
  const aborted = deferred();
  await using opened = await withSandbox({
    exec: (_, { signal }) => {
      signal.addEventListener("abort", () => aborted.resolve());
      entered.resolve();
      return new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason as Error)),
      );
    },
  });
  const abort = new AbortController();
  const call = opened.sandbox.commands.run(["x"], { signal: abort.signal });
  await entered.promise;
  abort.abort();
  await assert.rejects(call, { code: "cancelled" });
  await aborted.promise;
});
