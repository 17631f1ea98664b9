import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, readFile, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test, type TestContext } from "node:test";
import { AppError } from "@forkd/contract";
import { MemoryCapture, type CaptureOptions } from "../../src/memory/capture.ts";
import { captureError } from "../../src/memory/helper.ts";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { Mapper, memoryFile, onTmpfs, page, processesWith, Talker, tool } from "./support.ts";

type Setting = { dir: string; mapper: Mapper; options: CaptureOptions };

const dirs: string[] = [];

after(async () => {
  for (const dir of dirs) assert.deepEqual(await processesWith(dir), [], "no process is left");
});

async function setting(t: TestContext, pages = 1024, how?: string): Promise<Setting> {
  const dir = await temporaryDirectory(t);
  const memory = await memoryFile(join(dir, "memory"), pages);
  const mapper = await Mapper.start(t, memory, pages * page, how);
  dirs.push(dir);
  const layerPath = join(dir, "layer");
  const options = { process: mapper.id, memoryFile: memory, memoryBytes: mapper.bytes, layerPath };
  return { dir, mapper, options: { ...options, direct: false } };
}

function helperArgs(options: CaptureOptions): string[] {
  return [
    ...["capture", "--pid", String(options.process.pid), "--memory", options.memoryFile],
    ...["--bytes", String(options.memoryBytes), "--layer", options.layerPath],
  ];
}

async function helperOf(options: CaptureOptions): Promise<number> {
  const [pid] = await processesWith(`--layer\0${options.layerPath}`);
  assert.ok(pid !== undefined);
  return pid;
}

test("arm() refuses an exited process and another process with its pid", async (t) => {
  const { mapper, options } = await setting(t);
  const other = { pid: mapper.id.pid, startTime: mapper.id.startTime + 1 };
  await rejectsWith(
    MemoryCapture.arm({ ...options, process: other }),
    "engine_failed",
    /process \d+ has exited/,
  );
  await mapper.kill();
  await rejectsWith(MemoryCapture.arm(options), "engine_failed", /process \d+ has exited/);
  const helper = new Talker(t, tool, helperArgs(options));
  assert.equal(await helper.line(), `error ESRCH process ${mapper.id.pid} has exited`);
});

for (const dirtied of [0, 600]) {
  test(`take() fails if a process with ${dirtied} changed pages has exited`, async (t) => {
    const { mapper, options } = await setting(t);
    await mapper.dirty(0, dirtied);
    await using capture = await MemoryCapture.arm(options);
    await mapper.kill();
    await rejectsWith(capture.take(), "engine_failed", /process \d+ has exited/);
    await rejectsWith(capture.write(), "engine_failed", /process \d+ has exited/);
  });
}

test("write() works after the process has exited", async (t) => {
  const { dir, mapper, options } = await setting(t);
  await mapper.dirty(5, 20);
  await using capture = await MemoryCapture.arm(options);
  await capture.take();
  await mapper.dump(join(dir, "dump"));
  await mapper.kill();
  assert.equal((await capture.write()).pages, 20);
  await copyFile(options.memoryFile, join(dir, "flat"));
  await capture.apply(join(dir, "flat"));
  assert.ok((await readFile(join(dir, "flat"))).equals(await readFile(join(dir, "dump"))));
});

test("pending and later calls reject when the helper is killed", async (t) => {
  const { options } = await setting(t);
  await using capture = await MemoryCapture.arm(options);
  const pid = await helperOf(options);
  process.kill(pid, "SIGSTOP");
  const taken = capture.take();
  const refused = rejectsWith(taken, "engine_failed", /was killed by SIGKILL/);
  process.kill(pid, "SIGKILL");
  await refused;
  await rejectsWith(capture.write(), "engine_failed", /was killed by SIGKILL/);
});

test("a call rejects while another is pending", async (t) => {
  const { options } = await setting(t);
  await using capture = await MemoryCapture.arm(options);
  const first = capture.take();
  await rejectsWith(capture.take(), "internal", /before it answered/);
  assert.equal((await first).pages, 0);
});

test("an abort ends the capture with its reason", async (t) => {
  const { options } = await setting(t);
  const abort = new AbortController();
  await using capture = await MemoryCapture.arm({ ...options, signal: abort.signal });
  process.kill(await helperOf(options), "SIGSTOP");
  const taken = capture.take();
  const reason = new AppError("cancelled", "enough");
  abort.abort(reason);
  await assert.rejects(taken, reason);
  await assert.rejects(
    MemoryCapture.arm({ ...options, layerPath: `${options.layerPath}2`, signal: abort.signal }),
    reason,
  );
});

test("disposing a capture ends a helper that hangs", async (t) => {
  const { options } = await setting(t);
  const capture = await MemoryCapture.arm(options);
  process.kill(await helperOf(options), "SIGSTOP");
  const refused = rejectsWith(capture.take(), "engine_failed", /capture was cancelled/);
  await capture[Symbol.asyncDispose]();
  await refused;
});

test("the helper exits with the process that started it", async (t) => {
  const { options } = await setting(t);
  // The shell's stdin stays open here, so the helper does not exit because of it.
  const shell = spawn("sh", ["-c", 'exec 3<&0; "$@" <&3 & wait', "sh", tool, ...helperArgs(options)], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  await once(shell.stdout, "data");
  await helperOf(options);
  const closed = once(shell, "close");
  shell.kill("SIGKILL");
  await closed;
});

test("arm() does not change an existing layer file", async (t) => {
  const { options } = await setting(t);
  await writeFile(options.layerPath, "mine");
  for (const direct of [false, true]) {
    await rejectsWith(MemoryCapture.arm({ ...options, direct }), "engine_failed", /cannot create .*layer/);
  }
  assert.equal(await readFile(options.layerPath, "utf8"), "mine");
});

test("arm() refuses a file that is not mapped, has another size or is mapped shared", async (t) => {
  const { dir, mapper, options } = await setting(t);
  const other = await memoryFile(join(dir, "other"), 8);
  await rejectsWith(MemoryCapture.arm({ ...options, memoryFile: other }), "engine_failed", /is not mapped/);
  await rejectsWith(
    MemoryCapture.arm({ ...options, memoryBytes: mapper.bytes - page }),
    "engine_failed",
    /is not mapped at the size/,
  );
  await rejectsWith(
    MemoryCapture.arm({ ...options, memoryFile: join(dir, "none") }),
    "engine_failed",
    /cannot find/,
  );
  const shared = await setting(t, 64, "shared");
  await rejectsWith(MemoryCapture.arm(shared.options), "engine_failed", /is mapped shared/);
});

const full = {
  name: "ForkdError",
  code: "disk_full",
  message: /^No space is left on the disk: ENOSPC/,
  remedy: { action: "free_disk" },
};

test(
  "a buffered capture fails on a full disk when it writes",
  { skip: process.getuid?.() !== 0 },
  async (t) => {
    const { mapper, options } = await setting(t);
    await mapper.dirty(0, 512);
    await onTmpfs(1 << 20, async (small) => {
      await using capture = await MemoryCapture.arm({ ...options, layerPath: join(small, "layer") });
      assert.equal((await capture.take()).pages, 512);
      await assert.rejects(capture.write(), full);
    });
  },
);

test(
  "a direct capture fails on a full disk before it is armed",
  { skip: process.getuid?.() !== 0 },
  async (t) => {
    const { mapper, options } = await setting(t);
    await mapper.dirty(0, 512);
    await onTmpfs(1 << 20, async (small) => {
      const arming = MemoryCapture.arm({ ...options, layerPath: join(small, "layer"), direct: true });
      await assert.rejects(arming, full);
    });
  },
);

test(
  "a direct capture that outgrows the disk fails with an error, not a signal",
  { skip: process.getuid?.() !== 0 },
  async (t) => {
    const { mapper, options } = await setting(t, 4096);
    await onTmpfs(6 << 20, async (small) => {
      await using capture = await MemoryCapture.arm({
        ...options,
        layerPath: join(small, "layer"),
        direct: true,
      });
      await mapper.dirty(0, 3000);
      await rejectsWith(capture.take(), "disk_full", /No space is left on the disk: ENOSPC/);
    });
  },
);

test("apply() fails on a full disk and for a file of another size", async (t) => {
  const { dir, mapper, options } = await setting(t);
  await mapper.dirty(0, 512);
  const flat = join(dir, "flat");
  await writeFile(flat, "");
  await truncate(flat, mapper.bytes - page);
  {
    await using capture = await MemoryCapture.arm(options);
    await capture.take();
    await rejectsWith(capture.apply("a\nb"), "invalid_request", /line break/);
    await rejectsWith(capture.apply(flat), "engine_failed", /has \d+ bytes, but guest memory has \d+/);
  }
  if (process.getuid?.() !== 0) return;
  await onTmpfs(1 << 20, async (small) => {
    const sparse = join(small, "flat");
    await writeFile(sparse, "");
    await truncate(sparse, mapper.bytes);
    await using capture = await MemoryCapture.arm({ ...options, layerPath: join(dir, "layer2") });
    await capture.take();
    await rejectsWith(capture.apply(sparse), "disk_full", /ENOSPC/);
  });
});

test("the helper refuses unknown or early commands and wrong arguments", async (t) => {
  const { options } = await setting(t);
  const unknown = new Talker(t, tool, helperArgs(options));
  assert.equal(await unknown.line(), "armed 0");
  assert.equal(await unknown.ask("tak"), `error EINVAL unknown command "tak"`);
  const early = new Talker(t, tool, helperArgs({ ...options, layerPath: `${options.layerPath}2` }));
  assert.equal(await early.line(), "armed 0");
  assert.equal(await early.ask("write"), `error EINVAL "write" before "take"`);
  const wrong = new Talker(t, tool, [...helperArgs(options), "more"]);
  assert.match((await wrong.line()) ?? "", /^error EINVAL usage/);
  const odd = new Talker(t, tool, helperArgs({ ...options, memoryBytes: 4097 }));
  assert.match((await odd.line()) ?? "", /^error EINVAL usage/);
});

test("take() fails if there is too little memory for the pages", async (t) => {
  const { mapper, options } = await setting(t, 16384);
  await mapper.dirty(0, 16384);
  const limited = new Talker(t, "sh", [
    "-c",
    'ulimit -v 30000; exec "$@"',
    "sh",
    tool,
    ...helperArgs(options),
  ]);
  assert.match((await limited.line()) ?? "", /^error ENOMEM cannot map \d+ MiB/);
});

test("arm() fails for a process of another user", { skip: process.getuid?.() !== 0 }, async (t) => {
  const { mapper, options } = await setting(t);
  await onTmpfs(4 << 20, async (open) => {
    // The program may be in a directory that other users cannot read.
    await copyFile(tool, join(open, "forkd-pages"));
    const stranger = new Talker(t, join(open, "forkd-pages"), helperArgs(options), 65534);
    assert.equal(await stranger.line(), `error EPERM cannot read the memory of process ${mapper.id.pid}`);
    await stranger.kill();
  });
});

test("captureError() turns an errno of the helper into an error with a remedy", () => {
  const space = { action: "free_disk" };
  const rights = {
    action: "advice",
    text: "Run the daemon as root, or set kernel.yama.ptrace_scope=0.",
  };
  const table = [
    ["ENOSPC", "disk_full", /No space is left on the disk: ENOSPC: text$/, space],
    ["EDQUOT", "disk_full", /No space is left on the disk: EDQUOT: text$/, space],
    ["ENOMEM", "capacity_exhausted", /text$/, { action: "branch_with_mode", mode: "diff" }],
    ["EPERM", "host_not_ready", /text$/, rights],
    ["EACCES", "host_not_ready", /text$/, rights],
    ["ESRCH", "engine_failed", /Cannot capture the memory: text$/, undefined],
    ["EIO", "engine_failed", /text$/, undefined],
    ["EWHATEVER", "engine_failed", /text$/, undefined],
  ] as const;
  for (const [errno, code, message, remedy] of table) {
    const error = captureError(errno, "text");
    assert.equal(error.code, code);
    assert.match(error.message, message);
    assert.deepEqual(error.remedy, remedy, errno);
  }
});
