/** The SDK against the real router over the real sockets; only the operations are the test's. */
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AppError,
  type HazardResult,
  type SnapshotInfo,
  type VerifyEvent,
  type VerifyReport,
} from "@forkd/contract";
import { fetchTransport, ForkError, Forkd, Sandbox, wireOf } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import { buildEvents } from "../../src/handlers/build-events.ts";
import { workEvents } from "../../src/handlers/work-events.ts";
import { info, withSandbox } from "./support.ts";
import { deferred, sandboxId, startServer, token } from "../support.ts";

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
  own_bytes: 0,
  total_bytes: 0,
};

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
      env: { A: "1" },
      labels: { l: "v" },
      vary: [{ values: { seed: 1 } }],
      ttlMs: 60_000,
    };
    const [first, second] = await forkd.fork("py", 2, options);
    assert.ok(first instanceof Sandbox);
    assert.deepEqual(wireOf(first), info);
    assert.ok(second instanceof ForkError && second instanceof AppError);
    assert.deepEqual([second.code, second.index, second.message], ["capacity_exhausted", 1, "no room"]);
  }
});

test("create() throws what the child's entry says", async () => {
  await using server = await startServer({
    fork: async () => [{ index: 0, error: "no room", code: "capacity_exhausted", details: {} }],
  });
  const forkd = await connect({ socket: server.socket });
  await assert.rejects(forkd.create("py"), { code: "capacity_exhausted" });
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

test("eval() passes its options and gives the result", async () => {
  const value = {
    result: "2",
    result_json: 2,
    stdout: "",
    stderr: "",
    error: null,
    traceback: null,
    error_info: null,
    results: [],
    exit_code: 0,
    interrupted: false,
    timed_out: false,
    truncated: false,
    restarted: false,
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
      return (async function* () {
        yield { type: "stdout" as const, offset: 0, data: "said", encoding: "utf8" as const };
        yield { type: "result" as const, result: value };
      })();
    },
  });
  const options = { language: "python", context: "c", timeoutMs: 3000 } as const;
  const result = await opened.sandbox.eval("1+1", options);
  assert.deepEqual(wireOf(result), { ...value, stdout: "said" });
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
  assert.deepEqual(wireOf(await snapshots.build({ tag: "py", recipe: "/r" }, { onProgress })), snapshot);
  assert.deepEqual(steps, ["boot"]);
  await assert.rejects(snapshots.build({ tag: "taken", recipe: "/r" }), { code: "snapshot_exists" });
  await assert.rejects(snapshots.build({ tag: "bad", recipe: "/r" }), { code: "engine_failed" });
  await assert.rejects(snapshots.build({ tag: "none" }), { code: "invalid_request" });
});

test("snapshots.verify() reports progress and hazards, and resolves with the report", async () => {
  const words = { title: "t", policy: "p", mechanism: "m", detail: "d" };
  const hazard: HazardResult = {
    id: "entropy",
    ...words,
    outcome: "fail",
    checked_at_unix: 1,
    duration_ms: 1,
  };
  const report: VerifyReport = {
    tag: "py",
    snapshot_id: "i",
    verified_at_unix: 1,
    forkd_version: "1",
    engine: "qemu 7.2",
    accelerator: "tcg",
    outcome: "fail",
    current: true,
    hazards: [hazard],
    children: { forked: 2, pooled: 0, branched: 2 },
    duration_ms: 1,
  };
  await using opened = await withSandbox({
    verifySnapshot: (input) =>
      workEvents<VerifyEvent>(async (emit) => {
        if (input.tag === "none") throw new AppError("snapshot_not_found", "None");
        assert.deepEqual([input.n, input.only, input.keep], [2, ["entropy"], true]);
        emit({ type: "progress", message: "forking", elapsed_ms: 1 });
        emit({ type: "hazard", hazard });
        return { type: "report", report };
      }),
  });
  const { snapshots } = opened.forkd;
  const seen: string[] = [];
  const found = await snapshots.verify("py", {
    n: 2,
    only: ["entropy"],
    keep: true,
    onProgress: ({ message }) => seen.push(message),
    onHazard: ({ id, outcome }) => seen.push(`${id} ${outcome}`),
  });
  assert.deepEqual(wireOf(found), report);
  assert.deepEqual(seen, ["forking", "entropy fail"]);
  await assert.rejects(snapshots.verify("none"), { code: "snapshot_not_found" });
  await assert.rejects(snapshots.verify("py", { n: 1 }), { code: "invalid_request" });
});

test("a sandbox is killed at the end of its block, once", async () => {
  let kills = 0;
  await using opened = await withSandbox({
    kill: async () => {
      if (kills++ > 0) throw new AppError("sandbox_not_found", "Gone");
      return undefined;
    },
    setTimeouts: (input) => ({ ...info, expires_at_unix: input.ttl_secs ?? 0 }),
    logs: async (input) => {
      assert.deepEqual([input.follow, input.tail], [true, 5]);
      return (async function* () {
        yield Buffer.from("line\n");
      })();
    },
  });
  {
    await using sandbox = await opened.forkd.sandboxes.get(sandboxId);
    await sandbox.setTimeouts({ ttlMs: 9000 });
    assert.deepEqual(sandbox.info.expiresAt, new Date(9000));
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
